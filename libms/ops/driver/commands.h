// The commands of ms-driver.
#pragma once

#include "base/cli.h"

namespace ms::driver {

Command run_command();
Command status_command();
Command report_command();
Command evict_command();
Command readmit_command();
Command give_back_command();
Command resize_command();
Command stop_command();
Command inspect_command();
Command look_command();   // started by inspect on every node
Command agent_command();  // started by run on every node

}  // namespace ms::driver
