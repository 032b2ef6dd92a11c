/** A process that is killed right after a commit, before anything is flushed. */
import * as lmdb from "lmdb";
import { Database } from "../../../src/stores/file/database.js";
import { letter } from "./letters.ts";

const [folder = ""] = process.argv.slice(2);
const database = await Database.open(lmdb, folder);
database.transact(() => database.answer(letter(1, [{ key: "theirs", text: "held" }]).request));
process.kill(process.pid, "SIGKILL");
