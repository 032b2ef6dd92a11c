/** For threads. `--import tsx` itself does nothing there. */
import { register } from "tsx/esm/api";

register();
