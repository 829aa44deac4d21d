/** A credential of an operator. Several operators share no credential, so that the audit names each of them. */
export interface OperatorCredential {
  /** The author of its changes in audit events. */
  readonly actor: string;
  readonly key: string;
}

/** The author of changes that are made with the credential without a name. */
export const unnamedOperator = "operator";

/** The author of changes that are made with a credential of this name. No id of a key begins like this. */
export function operatorActor(name: string): string {
  return `${unnamedOperator}:${name}`;
}
