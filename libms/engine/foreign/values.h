// Values of a checkpoint of another program beside its tensors: steps, settings of the optimizer, states of random
// number generators.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "foreign/checkpoint.h"

namespace ms::foreign {

struct Values {
  // By name; long ones as their beginning and a hash. Of a tensor in an object: type, shape and CRC-32.
  std::map<std::string, std::string> texts;
  std::vector<Problem> unread;
};

// Error("ckpt.read", storage); Error("ckpt.damaged", storage).
Values values_of(const Checkpoint& checkpoint);

}  // namespace ms::foreign
