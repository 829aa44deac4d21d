/** Why the service cannot start or go on, or a command cannot run, in a sentence for the one who runs it. */
export class Unusable extends Error {
  override readonly name = "Unusable";
}
