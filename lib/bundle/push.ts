/** The images of a bundle into one registry: what each is called there. Pure. */
import { HarborError } from "../errors.ts";
import { HUB, parseReference, type Reference } from "../images/reference.ts";
import type { BundleImage } from "./schema.ts";

/** `HOST[:PORT][/PATH]` without a trailing slash. Throws HarborError "usage" when no image could lie below it. */
export function registryPlace(given: string): string {
  const place = given.replace(/^(?:docker|https?):\/\//, "").replace(/\/+$/, "");
  const first = place.split("/")[0]!;
  if (!/[.:]/.test(first) && first !== "localhost") {
    throw new HarborError("usage", `--registry ${given}: '${first}' is not a host`, {
      hint: "write HOST[:PORT]/PATH, for example --registry registry.site:5000/gym",
    });
  }
  parseReference(`${place}/image`);
  return place;
}

/**
 * `<place>/<repository>:<tag>`: images of other registries than Docker Hub keep their host as a part of the path, so that
 * no two names meet; one that has only a digest gets its id for a tag.
 */
export function pushedName(image: BundleImage, place: string): string {
  const named = image.refs.map(parseReference).sort((a, b) => rank(a) - rank(b))[0]!;
  const { host, repository, tag } = named;
  const path = isBuilt(named) ? repository.replace(/^library\//, "") : repository;
  const from = host === HUB || host === "localhost" ? "" : `${host.replace(/[:[\]]+/g, "-").toLowerCase()}/`;
  return `${place}/${from}${path}:${isBuilt(named) ? image.id : tag ?? image.id}`;
}

/** A name with a tag says more than one by digest. */
const rank = ({ digest }: Reference): number => (digest === undefined ? 0 : 1);

const isBuilt = ({ repository }: Reference): boolean => /(?:^|\/)hb__[0-9a-f]+/.test(repository);
