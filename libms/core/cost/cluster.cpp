#include "cost/cluster.h"

#include "base/error.h"
#include "cost/roofline.h"

namespace ms::cost {

void bind(ConfigSchema& schema, Cluster& cluster) {
  schema.section("device", "The device of a rank.", cluster.device, kDeviceFields);
  schema.section("node", "A node, and the links between its ranks.", cluster.node, kNodeFields);
  schema.section("network", "The network between nodes.", cluster.network, kNetworkFields);
  schema.section("noise", "Variation between nodes.", cluster.noise, kNoiseFields);
}

namespace {

template <class F>
Cluster load_with(const std::vector<std::string>& assignments, F&& read) {
  Cluster cluster;
  ConfigSchema schema;
  bind(schema, cluster);
  read(schema);
  for (const std::string& assignment : assignments) schema.set(assignment, "--set-cluster");
  const auto check = [&](const char* key, auto&& parse) {
    try {
      parse();
    } catch (const Error& error) { schema.add_problem(key, error.what()); }
  };
  const DeviceConfig& device = cluster.device;
  constexpr double kLeastRate = 1e-3;  // 1 MB/s: below, times have no meaning
  const auto check_rate = [&](const char* key, double gb_s) {
    if (gb_s > 0 && gb_s < kLeastRate)
      schema.add_problem(key, fmt::format("{}: must be 0 or at least {} GB/s, got {}", key, kLeastRate, gb_s));
  };
  check_rate("node.rate", cluster.node.gb_s);
  check_rate("network.rate", cluster.network.gb_s);
  check("device.gemm", [&] { parse_curve(device.gemm, "device.gemm"); });
  check("device.gemm_fp8", [&] { parse_curve(device.gemm_fp8, "device.gemm_fp8"); });
  check("device.attention", [&] { parse_curve(device.attention, "device.attention"); });
  check("device.memory", [&] { parse_curve(device.memory, "device.memory"); });
  check("device.classes", [&] { parse_classes(device.classes); });
  schema.throw_if_problems();
  return cluster;
}

}  // namespace

std::string to_toml(const Cluster& cluster) {
  Cluster copy = cluster;
  ConfigSchema schema;
  bind(schema, copy);
  return schema.dump(false);
}

Cluster load_cluster(const std::string& path, const std::vector<std::string>& assignments) {
  return load_with(assignments, [&](ConfigSchema& schema) { schema.load_file(path); });
}

Cluster load_cluster_text(std::string_view text, const std::string& name, const std::vector<std::string>& assignments) {
  return load_with(assignments, [&](ConfigSchema& schema) { schema.load_text(text, name); });
}

}  // namespace ms::cost
