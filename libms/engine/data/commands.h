// The subcommands of ms-data.
#pragma once

#include "base/cli.h"

namespace ms::data {

Command encode_command();
Command info_command();
Command show_command();
Command decode_command();
Command images_command();
Command verify_command();
Command merge_command();
Command pack_command();
Command train_tokenizer_command();
Command serve_command();

}  // namespace ms::data
