/** The meanings of errors of MongoDB and its driver, by code, label and class. */
import { classesOf, type ErrorMeaning, HoldfastError, meaning, storeError } from "../../store/index.ts";

const { unavailable, unauthorized: denied, failure } = meaning;

const unreachable = "A server cannot reach another member of its replica set. Check their network.";
const election = "The replica set is electing a primary. The driver finds it by itself.";
const starting = "The server is starting or shutting down. If it does not come up, look at its log.";
const slow = "The server took too long. Check its load.";
const unsure =
  "No majority of the replica set confirmed the write in time, so it may be lost. Check that a majority is up.";
const conflict =
  "Other operations kept the server from writing. If that continues, look for long ones with db.currentOp().";
const rights = lacking("the rights that the cause names");
export const notPrimary =
  "This server is not the primary. Remove directConnection from the URL, or connect to the primary.";
const wrongIndex =
  "Another index is in the place of the store's index. Remove it, or create the index yourself and pass createIndex: false.";

/** By the code of the server. */
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
  365: unavailable(slow),
  371: unavailable(
    "setUserWriteBlockMode makes the server refuse all writes. Wait until the tool that set it, such as mongosync, has finished.",
  ),
  384: unavailable(unreachable),
  462: unavailable("The server is overloaded and refuses requests. Check its load."),
  9001: unavailable(unreachable),
  10058: unavailable(election),
  10107: unavailable(notPrimary),
  11600: unavailable(starting),
  11601: unavailable(
    "The operation was ended by killOp or killSessions. If that continues, look for a script that calls them.",
  ),
  11602: unavailable(election),
  13435: unavailable(election),
  13436: unavailable(election),
  14031: unavailable("The server's disk is almost full, so it refuses writes. Free some space, or add some."),
  13: denied(rights),
  18: denied(
    "The login failed. Check username, password and authSource in the URL, and that the user may log in from this machine.",
  ),
  334: denied("The server does not offer this way to log in. Correct authMechanism in the URL."),
  391: denied(
    "The client's login has expired, and the driver could not renew it. Check the source of its tokens, such as OIDC_CALLBACK.",
  ),
  8000: denied("Atlas refuses this client. Check its username, password and network access."),
  73: failure(
    "The server does not accept the name of the database or of the collection. Choose another name.",
  ),
  13297: failure("A database exists whose name differs only in case. Use that name, or a different one."),
  10003: failure("The collection is capped, so it loses records. Choose another collection."),
  67: failure(wrongIndex),
  85: failure(wrongIndex),
  86: failure(wrongIndex),
  121: failure("The collection has a validator that refuses records. Choose another collection."),
  166: failure("The collection is a view or a time series. Choose another collection."),
  323: failure(
    "The client's serverApi lacks commands that the store uses. Remove serverApi from its options, or its strict.",
  ),
};

const closedClient = failure(
  "The client is closed. Keep it open as long as the store, and close the store before it.",
);

/** By the class of the driver's error, or its nearest parent class. */
export const driverErrors: Readonly<Record<string, ErrorMeaning>> = {
  MongoWriteConcernError: unavailable(unsure),
  MongoServerSelectionError: unavailable(
    "The client finds no primary. Check that the servers are up, and that the URL has their hosts and the name of their replica set.",
  ),
  MongoNetworkTimeoutError: unavailable(
    "The server did not answer in time. Check its load and the network, or raise socketTimeoutMS.",
  ),
  MongoNetworkError: unavailable(
    "The connection was lost or could not be made. Check that the server is up, and the network and TLS on the way to it.",
  ),
  MongoOperationTimeoutError: unavailable(
    "The request took longer than timeoutMS. Check the server's load, or raise timeoutMS.",
  ),
  MongoWaitQueueTimeoutError: unavailable("All connections of the pool are in use. Raise maxPoolSize."),
  MongoStalePrimaryError: unavailable(election),
  MongoClientClosedError: closedClient,
  MongoTopologyClosedError: unavailable(
    "The client has given up connecting. Check that the servers are up, and call its connect() again.",
  ),
  MongoNotConnectedError: closedClient,
  MongoExpiredSessionError: closedClient,
  MongoServerClosedError: closedClient,
  MongoCompatibilityError: {
    code: "UNSUPPORTED",
    what: "The server is too old for this version of the driver, or lacks a command. docs/stores/mongodb.md lists the versions that work together.",
  },
  MongoMissingCredentialsError: denied(
    "The server requires a login, and the client has no credentials. Put a username and a password into the URL.",
  ),
};

/** Labels of errors after which the request may be repeated. */
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
  // The code of an unconfirmed write is the reason. That its result is unknown matters more.
  const unconfirmed = classesOf(error).includes("MongoWriteConcernError") ? unavailable(unsure) : undefined;
  const known = unconfirmed ?? serverErrors[code ?? -1] ?? byLabel(error) ?? byClass(error);
  return saying(known ?? failure("The cause has its text."), code, error);
}

/** The same for a request that needs a right, which the message names. */
export function mapErrorOf(right: string, error: unknown): HoldfastError {
  const code = serverCode(error);
  return code === UNAUTHORIZED ? saying(denied(lacking(right)), code, error) : mapError(error);
}

const UNAUTHORIZED = 13;

function lacking(rights: string): string {
  return `The client has not logged in, or its user lacks ${rights}. docs/stores/mongodb.md lists the rights to grant.`;
}

/** Undefined for errors of the driver. */
export function serverCode(error: unknown): number | undefined {
  const { code } = Object(error) as { code?: unknown };
  return typeof code === "number" ? code : undefined;
}

function byLabel(error: unknown): ErrorMeaning | undefined {
  const { errorLabels } = Object(error) as { errorLabels?: unknown };
  const labels = Array.isArray(errorLabels) ? errorLabels : [];
  return labels.some((label) => retryableLabels.includes(label))
    ? unavailable("The server calls the error transient. If it stays, the cause has its text.")
    : undefined;
}

function byClass(error: unknown): ErrorMeaning | undefined {
  // A client that finds only servers of other versions reports that it finds no server, with the reason in the cause.
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
