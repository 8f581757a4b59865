// Tells where a change of roles, principals or tokens is in force.
import { toast } from "./lib-ui.js";

export function tellChange({ not_yet: notYet = [] } = {}, text) {
  toast(notYet.length === 0
    ? `${text}. It is in force at all nodes.`
    : `${text}. Not confirmed yet by node ${notYet.join(", ")}.`);
}
