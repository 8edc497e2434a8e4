// Tells one start of a run from another.
#pragma once

#include <functional>
#include <string>

namespace ms::comm {

// Returns a text that differs from start to start and is the same in all processes of one start. A process that was
// started without a launcher has its own. `variable` is getenv, or a test's.
std::string start_nonce(const std::function<const char*(const char*)>& variable);
std::string this_start_nonce();

}  // namespace ms::comm
