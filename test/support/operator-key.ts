/** The operator's credential of every test application. */
export const operatorKey = "operator-credential-of-the-tests";
