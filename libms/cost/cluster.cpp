#include "cost/cluster.h"

#include "base/error.h"
#include "cost/roofline.h"

namespace ms::cost {

void bind(ConfigSchema& schema, Cluster& cluster) {
  schema.section("device", "The device of a rank.", cluster.device, kDeviceFields);
  schema.section("node", "A node, and the links between its ranks.", cluster.node, kNodeFields);
  schema.section("network", "The network between nodes.", cluster.network, kNetworkFields);
  schema.section("noise", "How nodes differ.", cluster.noise, kNoiseFields);
}

namespace {

template <class F>
Cluster load_with(const std::vector<std::string>& assignments, F&& read) {
  Cluster cluster;
  ConfigSchema schema;
  bind(schema, cluster);
  read(schema);
  for (const std::string& assignment : assignments) schema.set(assignment);
  const auto check = [&](const char* key, auto&& parse) {
    try {
      parse();
    } catch (const Error& error) { schema.add_problem(key, error.what()); }
  };
  const DeviceConfig& device = cluster.device;
  check("device.gemm", [&] { parse_curve(device.gemm, "device.gemm"); });
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
