/** What the errors of MongoDB and of its driver mean. Told apart by code, label and class, never by their text. */
import { classesOf, type ErrorMeaning, HoldfastError, meaning, storeError } from "../../core/index.ts";

const { unavailable, unauthorized: denied, failure } = meaning;

const unreachable = "A server cannot reach another one of its replica set: check their network.";
const election = "The replica set is choosing another primary; the driver finds it by itself.";
const starting = "The server is starting or shutting down.";
const slow = "The server took too long: look at its load.";
const unsure =
  "No majority of the replica set has confirmed the write in time, so whether it stays is unknown: check that a majority is up.";
const conflict = "Other operations kept the server from writing.";
const rights = "docs/stores/mongodb.md lists the rights that the user needs.";
const wrongIndex =
  "Another index has the place of the store's: remove it, or make the index yourself and say createIndex: false.";

/** By code of an error that the server answered. */
export const serverErrors: Readonly<Record<number, ErrorMeaning>> = {
  6: unavailable(unreachable),
  7: unavailable(unreachable),
  24: unavailable(conflict),
  46: unavailable(conflict),
  50: unavailable(slow),
  64: unavailable(unsure),
  89: unavailable(unreachable),
  91: unavailable(starting),
  100: unavailable(unsure),
  112: unavailable(conflict),
  133: unavailable(election),
  134: unavailable(starting),
  189: unavailable(election),
  202: unavailable(slow),
  262: unavailable(slow),
  317: unavailable(unreachable),
  384: unavailable(unreachable),
  462: unavailable("The server refuses requests because it is overloaded."),
  9001: unavailable(unreachable),
  10058: unavailable(election),
  10107: unavailable(
    "This server is not the primary: where it does not become one, leave directConnection out of the URL, or connect to the primary.",
  ),
  11600: unavailable(starting),
  11601: unavailable("The operation was ended by somebody."),
  11602: unavailable(election),
  13435: unavailable(election),
  13436: unavailable(election),
  14031: unavailable("The server's disk is full."),
  13: denied(rights),
  18: denied("The username or the password of the client is wrong."),
  33: denied("The key of the server has expired."),
  391: denied("The client has to log in again."),
  8000: denied("Atlas does not let this client in: check its username, password and network access."),
  67: failure(wrongIndex),
  85: failure(wrongIndex),
  86: failure(wrongIndex),
  121: failure("The collection has a validator that refuses records: choose another collection."),
  166: failure("The collection is a view or a time series: choose another collection."),
  323: failure("The client is bound to a version of the API in which the command is missing."),
};

const closedClient = failure(
  "The client is closed. Keep it open as long as the store, and close the store before it.",
);

/** By name of an error that the driver itself came up with. What is not here is looked for by its parent class. */
export const driverErrors: Readonly<Record<string, ErrorMeaning>> = {
  MongoWriteConcernError: unavailable(unsure),
  MongoServerSelectionError: unavailable("The client finds no primary: check that the servers are up."),
  MongoNetworkTimeoutError: unavailable("The server did not answer in time."),
  MongoNetworkError: unavailable("The connection was lost or could not be made."),
  MongoOperationTimeoutError: unavailable("The time that timeoutMS allows was over."),
  MongoWaitQueueTimeoutError: unavailable("All connections of the pool are in use: raise maxPoolSize."),
  MongoStalePrimaryError: unavailable(election),
  MongoClientClosedError: closedClient,
  MongoTopologyClosedError: unavailable(
    "The client has given up connecting, and does so again when its connect() is called: check that the servers are up.",
  ),
  MongoNotConnectedError: closedClient,
  MongoExpiredSessionError: closedClient,
  MongoServerClosedError: closedClient,
  MongoCompatibilityError: {
    code: "UNSUPPORTED",
    what: "The server is too old for this version of the driver, or cannot do what it was asked.",
  },
  MongoMissingCredentialsError: denied("The client has no credentials, and the server wants some."),
};

/** What the server or the driver says may be repeated. The outcome may be unknown, but it is no answer. */
export const retryableLabels = [
  "RetryableWriteError",
  "RetryableError",
  "SystemOverloadedError",
  "TransientTransactionError",
  "NoWritesPerformed",
];

export function mapError(error: unknown): HoldfastError {
  if (error instanceof HoldfastError) return error;
  const code = serverCode(error);
  // A write that no majority confirmed has the code of why not; that it is unknown what became of it matters more.
  const unconfirmed = classesOf(error).includes("MongoWriteConcernError") ? unavailable(unsure) : undefined;
  const known = unconfirmed ?? serverErrors[code ?? -1] ?? byLabel(error) ?? byClass(error);
  return saying(known ?? failure("The cause has its words."), code, error);
}

/** The number of an error that the server answered; undefined for the driver's own. */
export function serverCode(error: unknown): number | undefined {
  const { code } = Object(error) as { code?: unknown };
  return typeof code === "number" ? code : undefined;
}

function byLabel(error: unknown): ErrorMeaning | undefined {
  const { errorLabels } = Object(error) as { errorLabels?: unknown };
  const labels = Array.isArray(errorLabels) ? errorLabels : [];
  return labels.some((label) => retryableLabels.includes(label))
    ? unavailable("It may be repeated.")
    : undefined;
}

function byClass(error: unknown): ErrorMeaning | undefined {
  // A client that finds none but servers of the wrong age says that it finds no server, and why in the cause.
  const { cause } = Object(error) as { cause?: unknown };
  if (classesOf(cause).includes("MongoCompatibilityError")) return driverErrors["MongoCompatibilityError"];
  for (const name of classesOf(error)) if (driverErrors[name] !== undefined) return driverErrors[name];
  return undefined;
}

function saying({ code, what }: ErrorMeaning, number: number | undefined, cause: unknown): HoldfastError {
  const answered = number === undefined ? "" : ` It answered with error ${number}.`;
  const how = code === "STORE_UNAVAILABLE" ? "is unavailable" : "failed";
  return storeError(code, `MongoDB ${how}.${answered} ${what}`, { cause });
}
