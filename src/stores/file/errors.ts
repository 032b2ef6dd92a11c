/** What the errors of the file system and of LMDB mean. Told apart by code, never by the rest of the text. */
import { constants } from "node:os";
import { type ErrorMeaning, type HoldfastError, meaning, storeError } from "../../core/index.ts";
import type { Failure } from "./protocol.ts";

const { unavailable, failure, unauthorized } = meaning;

const rights = "This user may not write to it: it needs to read, write and create files there.";
const damaged =
  "One of its files is damaged. Stop all processes that use it: live.mdb is made anew then. If that does not help it is locks.mdb; put the folder aside, and start with an empty one: fences go on from the time.";

/** By the name of an errno, the number of a code of LMDB, or a word of our own. */
export const meanings: Readonly<Record<string, ErrorMeaning>> = {
  ENOSPC: unavailable("The disk is full. Nothing was changed. Make room, and it goes on by itself."),
  EDQUOT: unavailable(
    "The quota of this user is used up. Nothing was changed. Make room, and it goes on by itself.",
  ),
  EFBIG: unavailable(
    "A file may not become larger here. Raise the limit (ulimit -f), and it goes on by itself.",
  ),
  EIO: unavailable("The disk failed to read or write. Look at the system's log."),
  ENOMEM: unavailable(
    "The system is out of memory or address space. Give it more, or let fewer programs run there.",
  ),
  EMFILE: unavailable("This process has too many open files. Raise the limit (ulimit -n)."),
  ENFILE: unavailable(
    "The system has too many open files. Raise its limit (fs.file-max), or look for who has them.",
  ),
  ENOLCK: unavailable(
    "The system has no more locks to give. Choose a folder on a local disk, or look for who has them.",
  ),
  EBUSY: unavailable("Something else uses its files. Let nothing but Holdfast open them."),
  EAGAIN: unavailable("The system was short of something for a moment. It is tried anew."),
  EINTR: unavailable("The system interrupted the call. It is tried anew."),
  ESTALE: unavailable("The file system that it was on is gone. Mount it again."),
  EACCES: unauthorized(rights),
  EPERM: unauthorized(rights),
  EROFS: unauthorized("The file system is read-only. Mount it for writing, or choose another folder."),
  ENOENT: failure("A file that belongs there is gone. Restart the processes that use the folder."),
  ENOTDIR: failure("It is, or is in, something that is not a folder. Choose another one."),
  EEXIST: failure("Something that is not a folder has its name. Choose another one."),
  EISDIR: failure("A folder stands where a file should. Choose another one."),
  ENAMETOOLONG: failure("Its name is too long. Choose another one."),
  ELOOP: failure("Its name leads in circles. Choose another one."),
  EINVAL: failure("The file system cannot do what LMDB needs. Choose a folder on a local disk."),
  ENOTSUP: failure("The file system cannot do what LMDB needs. Choose a folder on a local disk."),
  ENODEV: failure("The file system cannot share memory between processes. Choose a folder on a local disk."),
  "-30792": unavailable(
    "The address space for the file is used up. Nothing was changed. Look for very many keys that nobody releases.",
  ),
  "-30785": unavailable(
    "Another process made the file larger than this one can use. The file is opened anew.",
  ),
  "-30788": unavailable("Too much was asked for at once. Nothing was changed. Ask for fewer keys at once."),
  "-30790": unavailable("Too many processes use the folder. End some, or give them a lock server."),
  "-30775": unavailable("The lock of the file failed. It is tried anew."),
  "-30795": unavailable("LMDB met an error earlier and has stopped. The file is opened anew."),
  "-30782": unavailable("LMDB met an error earlier in the transaction. The file is opened anew."),
  "-30779": unavailable("LMDB met an error that it has no name for. The file is opened anew."),
  "-30797": failure(damaged),
  "-30796": failure(damaged),
  "-30793": failure("The file locks.mdb is not one of LMDB. Choose another folder, or remove it."),
  "-30794": failure(
    "Its files were written by another version of LMDB. Use the same version of the lmdb package everywhere, or another folder.",
  ),
  "-30784": failure("The file locks.mdb holds something else than Holdfast wrote. Choose another folder."),
  FOREIGN: failure("The file locks.mdb holds something else than Holdfast wrote. Choose another folder."),
  NEWER_FORMAT: failure(
    "It was written by a newer version of Holdfast. Update Holdfast, or choose another folder.",
  ),
  OLDER_FORMAT: failure(
    "It was written by a version of Holdfast from before the first release. Remove the folder while nobody uses it, or choose another one.",
  ),
  STALE_BASE: unavailable(
    "Others opened its files in the same moment, several times in a row. Nothing was changed. Try again.",
  ),
  HALF_DONE: unavailable(
    "Others opened its files in the same moment. Whether it was done is unknown. Try again.",
  ),
  FLUSH_FAILED: unavailable(
    "The disk failed to take what was written. Whether it has it is unknown. Look at the system's log.",
  ),
  DAMAGED_LOG: failure(
    "Its log is damaged: the disk has lost what was written to it. Stop all processes that use the folder, and it goes on with what the disk has.",
  ),
  OWNER_TOO_LONG: failure("The name of an owner is too long. It may have 1,899 bytes."),
  NETWORK_FOLDER: {
    code: "UNSUPPORTED",
    what: "It is on a network file system, where the locks of one machine do not count on another. Choose a folder on a local disk, or another store.",
  },
  OPEN_TWICE: failure(
    "Another thread or another copy of Holdfast in this process has it open. Use one store for all, in one thread.",
  ),
  NO_LMDB: {
    code: "UNSUPPORTED",
    what: "The package lmdb could not be loaded. Install it: npm install lmdb.",
  },
};

/** The names of the numbers that the system uses for its errors. Some numbers have two, and the table knows one of them. */
const errnoNames = new Map(
  Object.entries(constants.errno)
    .sort(([name]) => (name in meanings ? 1 : -1))
    .map(([name, number]) => [number, name]),
);

export function mapFailure({ code, message }: Failure, folder: string): HoldfastError {
  const name = typeof code === "number" ? (errnoNames.get(code) ?? String(code)) : code;
  const { code: errorCode, what } = meanings[name] ?? failure("The cause has the details.");
  // A lock server tells its clients the message, but not the cause.
  const cause = new Error(`${folder}: ${message}`);
  return storeError(errorCode, `The file store cannot use its folder (${name}). ${what}`, { cause });
}
