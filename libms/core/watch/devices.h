// The state of a node's devices when a run hangs, for people: its GPUs as NVML tells it, its links, disks and host.
// Read by ms-diag, in processes of its own, because a driver that hangs may be why the run does.
#pragma once

#include <string>
#include <string_view>

namespace ms::watch {

inline constexpr double kDevices_s = 3;  // for all of it

// Returns a line a device of what "ms-diag collect --json" printed, "gpu0: temperature_c 34, power_w 71", and a line
// for what could not be read. Throws JsonError. Pure.
std::string devices_text(std::string_view sample);

// Has `diag` read it; takes some 0.1 s, kDevices_s and half a second at most. Where it cannot be read, the text says
// why.
std::string device_state(const std::string& diag) noexcept;

}  // namespace ms::watch
