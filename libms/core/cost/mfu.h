// Model FLOPs utilisation: what was computed, in a named convention of flops.h, over what the devices could have.
#pragma once

#include <optional>
#include <string_view>

namespace ms::cost {

// Returns the peak of dense bf16 GEMMs, FLOP/s, by the name that the driver gives the device ("NVIDIA H100 80GB HBM3");
// nullopt for devices we do not know and for slices of one (MIG): then the peak must be given, or MFU is not printed.
std::optional<double> known_peak_flops(std::string_view device_name);

// The most that a device could do, by NVIDIA's data sheets.
struct Ceilings {
  double bf16_flops, fp8_flops;  // FLOP/s of dense GEMMs; those of fp8 are of bf16 where there is no fp8
  double bytes_per_s;            // of its memory
};
// The same devices. Both compare names in either case ("h200").
std::optional<Ceilings> known_ceilings(std::string_view device_name);

// 0.412 is 41.2 %.
constexpr double mfu(double flops_per_token, double tokens_per_s, double peak_flops, int ranks) {
  return flops_per_token * tokens_per_s / (peak_flops * ranks);
}

}  // namespace ms::cost
