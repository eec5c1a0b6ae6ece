import { userInfo } from "node:os";
import process from "node:process";

/**
 * Who runs this program. A uid without a passwd entry (containers, Slurm with LDAP trouble) is its own name: os.userInfo()
 * throws there, in Bun 1.4.5 also for want of a HOME.
 */
export function thisUser(): { name: string; uid: number } {
  const uid = thisUid();
  try {
    const { username } = userInfo();
    return { name: username === "" || username === "unknown" ? String(uid) : username, uid };
  } catch {
    return { name: String(uid), uid };
  }
}

/** The number of that user; 0 where a system has none. */
export const thisUid = (): number => process.getuid?.() ?? 0;
