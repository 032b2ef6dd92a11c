/** Maps errors of the file system and of LMDB to errors of the store, by their codes. */
import { constants } from "node:os";
import { type ErrorMeaning, type HoldfastError, meaning, storeError } from "../../store/index.ts";
import type { Failure } from "./protocol.ts";

const { unavailable, failure, unauthorized } = meaning;

const rights = "This user may not use the folder. Give it the rights to read, write and create files there.";
const damaged =
  "The file locks.mdb is damaged. Stop all processes that use the folder, move it away and start with an empty one. Fences still grow, because they follow the time.";

/** By the name of an errno, the number of an LMDB error, or a code of this store. */
export const meanings: Readonly<Record<string, ErrorMeaning>> = {
  ENOSPC: unavailable(
    "The disk is full. Nothing was changed. Free some space; the store then continues by itself.",
  ),
  EDQUOT: unavailable(
    "The disk quota of this user is used up. Nothing was changed. Free some space; the store then continues by itself.",
  ),
  EFBIG: unavailable(
    "The file size limit is reached. Raise the limit (ulimit -f); the store then continues by itself.",
  ),
  EIO: unavailable("The disk failed to read or write. Look at the system's log."),
  ENOMEM: unavailable("The system is out of memory or address space. Add memory, or stop other programs."),
  EMFILE: unavailable("This process has too many open files. Raise the limit (ulimit -n)."),
  ENFILE: unavailable(
    "The system has too many open files. Raise its limit (fs.file-max), or find the process that opens them with lsof.",
  ),
  ENOLCK: unavailable(
    "The system has no file locks left. Choose a folder on a local disk, or find the process that holds the locks.",
  ),
  EBUSY: unavailable("Another program uses the files of the folder. Let only Holdfast open them."),
  EAGAIN: unavailable("The system lacked a resource for a moment. The store tries again."),
  EINTR: unavailable("The system interrupted the call. The store tries again."),
  ESTALE: unavailable("The file system of the folder is gone. Mount it again."),
  EACCES: unauthorized(rights),
  EPERM: unauthorized(rights),
  EROFS: unauthorized("The file system is read-only. Mount it for writing, or choose another folder."),
  ENOENT: failure("A file of the folder is missing. Restart the processes that use the folder."),
  ENOTDIR: failure("A part of the path is not a folder. Choose another path."),
  EEXIST: failure("A file that is not a folder has this path. Choose another path."),
  NO_FOLDER: failure("No folder can be made there. Choose another path."),
  EISDIR: failure("A folder has the name of a file of the store. Choose another folder."),
  ENAMETOOLONG: failure("The path is too long. Choose a shorter path."),
  ELOOP: failure("The path has a loop of symbolic links. Choose another path."),
  EINVAL: failure("The file system cannot do what LMDB needs. Choose a folder on a local disk."),
  ENOTSUP: failure("The file system cannot do what LMDB needs. Choose a folder on a local disk."),
  ENODEV: failure("The file system cannot share memory between processes. Choose a folder on a local disk."),
  "-30792": unavailable(
    "The address space for the file is used up. Nothing was changed. Look for keys that are never released.",
  ),
  "-30785": unavailable(
    "Another process made the file larger than this process has mapped. The store opens it again.",
  ),
  "-30788": unavailable(
    "One transaction had too many changes. Nothing was changed. Use fewer keys per call.",
  ),
  "-30790": unavailable("Too many processes use the folder. Stop some, or run a lock server for them."),
  "-30775": unavailable("The lock of the file failed. The store tries again."),
  "-30795": unavailable("LMDB stopped after an earlier error. The store opens the file again."),
  "-30782": unavailable("An earlier step of the transaction failed in LMDB. The store opens the file again."),
  "-30779": unavailable("LMDB reported an unknown error. The store opens the file again."),
  "-30797": failure(damaged),
  "-30796": failure(damaged),
  "-30793": failure("The file locks.mdb is not an LMDB file. Choose another folder, or remove the file."),
  "-30794": failure(
    "Another version of LMDB wrote the files. Use the same version of the lmdb package in all processes, or another folder.",
  ),
  "-30784": failure("The file locks.mdb has content of another program. Choose another folder."),
  FOREIGN: failure("The file locks.mdb has content of another program. Choose another folder."),
  OTHER_FORMAT: failure(
    "The folder has another format. Use the version of Holdfast that wrote it, or choose another folder.",
  ),
  STALE: unavailable(
    "Other processes opened or removed the file at the same moment, several times in a row. Nothing was changed. Try again.",
  ),
  NETWORK_FOLDER: {
    code: "UNSUPPORTED",
    what: "The folder is on a network file system, where machines do not see each other's locks. Choose a folder on a local disk, or another store.",
  },
  OPEN_TWICE: failure(
    "Another thread or another copy of Holdfast in this process has the folder open. Share one store, in one thread.",
  ),
  NO_LMDB: {
    code: "UNSUPPORTED",
    what: "The package lmdb could not be loaded. Install it: npm install lmdb.",
  },
};

/** The names of the system's error numbers. If a number has two names, the one in the table counts. */
const errnoNames = new Map(
  Object.entries(constants.errno)
    .sort(([name]) => (name in meanings ? 1 : -1))
    .map(([name, number]) => [number, name]),
);

export function mapFailure({ code, message }: Failure, folder: string): HoldfastError {
  const name = typeof code === "number" ? (errnoNames.get(code) ?? String(code)) : code;
  const { code: errorCode, what } = meanings[name] ?? failure("The cause has the details.");
  // A lock server passes the message to its clients, but not the cause.
  const cause = new Error(`${folder}: ${message}`);
  return storeError(errorCode, `The file store cannot use its folder (${name}). ${what}`, { cause });
}
