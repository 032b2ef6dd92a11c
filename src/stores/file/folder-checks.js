/** What can be told about a folder before anything is written into it. */
import { statfsSync } from "node:fs";

/** File systems on which neither locks nor shared memory work between machines, by the number that the kernel gives them. */
const networkFileSystems = new Map([
  [0x6969, "NFS"],
  [0x517b, "SMB"],
  [0xff534d42, "CIFS"],
  [0xfe534d42, "SMB2"],
  [0x5346414f, "AFS"],
  [0x6b414653, "AFS"],
  [0x00c36400, "Ceph"],
  [0x0bd00bd0, "Lustre"],
  [0x01021997, "9P"],
  [0x786f4256, "VirtualBox shared folder"],
  [0x7461636f, "OCFS2"],
  [0x47504653, "GPFS"],
]);

/**
 * @param {number} type As `statfs` tells it, which may be signed.
 * @returns {string | undefined} The name of a file system that will not do.
 */
export function networkFileSystem(type) {
  return networkFileSystems.get(type >>> 0);
}

/**
 * @param {string} folder
 * @returns {Error | undefined}
 */
export function folderFailure(folder) {
  // Elsewhere the numbers mean something else.
  const name = process.platform === "linux" ? networkFileSystem(statfsSync(folder).type) : undefined;
  return name === undefined ? undefined : Object.assign(new Error(name), { code: "NETWORK_FOLDER" });
}
