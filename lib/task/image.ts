/** What a task starts from, read off `docker_image` and `environment/` (task-format §6.1). */
import { classifyDockerfile } from "./dockerfile_mode.ts";
import { addedUser } from "./dockerfile_users.ts";
import type { TaskFiles } from "./files.ts";
import type { ImagePlan } from "./task.ts";

/** Names that Compose itself would take, and that are data here. */
const OTHER_COMPOSE_NAMES = ["docker-compose.yml", "compose.yaml", "compose.yml"];

/** The plan; faults go to the findings of `files`. */
export function imagePlan(id: string, dockerImage: string | undefined, files: TaskFiles, strict: boolean): ImagePlan {
  const isFile = files.kind("environment") === "dir" && files.kind("environment/Dockerfile") === "file";
  const dockerfile = isFile ? files.dockerfile("environment/Dockerfile") : undefined;
  const addsUser = dockerfile === undefined ? undefined : addedUser(dockerfile.text);
  return { ...planned(id, dockerImage, { isFile, dockerfile }, files, strict), ...(addsUser && { addsUser }) };
}

interface Found {
  /** environment/Dockerfile is a file. */
  isFile: boolean;
  /** It, where it can be read. */
  dockerfile: { path: string; text: string } | undefined;
}

function planned(
  id: string,
  dockerImage: string | undefined,
  { isFile, dockerfile }: Found,
  files: TaskFiles,
  strict: boolean,
): ImagePlan {
  const kind = files.kind("environment");
  if (kind === "file" && (strict ? dockerImage === undefined : true)) {
    files.say("environment.not-a-folder", "environment", {});
  } else if (kind === undefined && dockerImage === undefined) {
    if (strict) files.say("environment.missing", "", {});
    else files.say("image.none", "environment", { id });
  }
  if (kind !== "dir") {
    return dockerImage === undefined ? NONE : { mode: "prebuilt", reference: dockerImage, uploads: false };
  }
  if (files.kind("environment/docker-compose.yaml") === "file") {
    return {
      mode: "compose",
      ...(dockerImage !== undefined && { reference: dockerImage }),
      ...(dockerfile && { dockerfile: dockerfile.path }),
      uploads: false,
    };
  }
  if (dockerImage !== undefined) return prebuilt(dockerImage, dockerfile, files);
  if (dockerfile === undefined) {
    if (isFile) return NONE; // it cannot be read, which was said
    const other = OTHER_COMPOSE_NAMES.find((name) => files.kind(`environment/${name}`) === "file");
    const hint = other === undefined
      ? undefined
      : `environment/${other} is data here; rename it to docker-compose.yaml`;
    if (!strict) files.say("image.none", "environment", { id, hint });
    return { mode: "none", uploads: files.holdsFiles("environment") };
  }
  const mode = classifyDockerfile(dockerfile.text);
  return mode.mode === "build"
    ? { mode: "build", dockerfile: dockerfile.path, reason: mode.reason, uploads: false }
    : { mode: mode.mode, reference: mode.image, dockerfile: dockerfile.path, uploads: false };
}

const NONE: ImagePlan = { mode: "none", uploads: false };

/** A Dockerfile beside docker_image counts only where it begins from that image and needs nothing run. */
function prebuilt(
  reference: string,
  dockerfile: { path: string; text: string } | undefined,
  files: TaskFiles,
): ImagePlan {
  if (dockerfile === undefined) return { mode: "prebuilt", reference, uploads: files.holdsFiles("environment") };
  const mode = classifyDockerfile(dockerfile.text);
  const applies = mode.mode === "pull" && mode.image === reference && mode.changes.length > 0;
  return { mode: "prebuilt", reference, ...(applies && { dockerfile: dockerfile.path }), uploads: false };
}
