// The output of ms-ckpt about checkpoints of other programs: text for people, one JSON document (schema 1) for
// programs.
#pragma once

#include <string>
#include <vector>

#include "foreign/checkpoint.h"
#include "foreign/verify.h"

namespace ms::foreign {

// `checkpoints`: opened, in the order of `places`.
std::string list_text(const std::string& dir, const std::vector<Place>& places,
                      const std::vector<Checkpoint>& checkpoints);
std::string list_json(const std::string& dir, const std::vector<Place>& places,
                      const std::vector<Checkpoint>& checkpoints);
std::string show_text(const Checkpoint& checkpoint, bool tensors);
std::string show_json(const Checkpoint& checkpoint);
std::string verify_text(const std::vector<Verified>& verified);
std::string verify_json(const std::vector<Verified>& verified);

}  // namespace ms::foreign
