// Tells by the names of events on the host why its device is idle meanwhile. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tracepp/steps/idle_causes.h"

namespace ms::tracepp {

enum class HostRole : std::uint8_t {
  none,
  op,
  call,          // of the device's runtime,
  synchronises,  // which waits for the device
  data,
  save,
  collection,
  compilation,
  around,  // an annotation, a module, a function of a library
  line,    // a Python function of the user
};
HostRole host_role(const EventInfo& info, std::string_view name);
// Returns the cause that such an event is, whatever runs inside it.
std::optional<IdleCause> cause_of(HostRole role);

}  // namespace ms::tracepp
