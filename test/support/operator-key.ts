import { unnamedOperator } from "../../src/call/operators.js";

/** The operator's credential of every test application. */
export const operatorKey = "operator-credential-of-the-tests";

/** The same as an option of the application. */
export const operatorCredential = { actor: unnamedOperator, key: operatorKey };
