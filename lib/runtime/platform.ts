/** What images this machine runs. */
import process from "node:process";

const ARCHITECTURES: Record<string, string> = { x64: "amd64", ia32: "386" };

/** `linux/<architecture>` as image configurations write it; on other systems engines run Linux too. */
export const machinePlatform = (): string => `linux/${ARCHITECTURES[process.arch] ?? process.arch}`;
