import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.ServerVersion;
import de.bwaldvogel.mongo.backend.h2.H2Backend;

/** Serves MongoDB's protocol on the port that is the first argument, from the file that is the second. */
class Server {
  public static void main(String[] args) {
    MongoServer server = new MongoServer(new H2Backend(args[1]).version(ServerVersion.MONGO_5_0));
    server.bind("127.0.0.1", Integer.parseInt(args[0]));
  }
}
