/** A process that is killed right after a commit, before anything is flushed. */
import * as lmdb from "lmdb";
import { openFolder } from "../../../src/stores/file/open-folder.js";
import { answer } from "../../../src/stores/file/requests.js";
import { letter } from "./letters.ts";

const [folder = ""] = process.argv.slice(2);
const files = await openFolder(lmdb, folder);
files.transact(() => answer(files, letter(1, [{ key: "theirs", text: "held" }]).request));
process.kill(process.pid, "SIGKILL");
