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
  const auto check_curve = [&](const std::vector<std::string>& points, const char* key) {
    try {
      parse_curve(points, key);
    } catch (const Error& error) { schema.add_problem(key, error.what()); }
  };
  check_curve(cluster.device.products, "device.products");
  check_curve(cluster.device.attention, "device.attention");
  check_curve(cluster.device.memory, "device.memory");
  schema.throw_if_problems();
  return cluster;
}

}  // namespace

Cluster load_cluster(const std::string& path, const std::vector<std::string>& assignments) {
  return load_with(assignments, [&](ConfigSchema& schema) { schema.load_file(path); });
}

Cluster load_cluster_text(std::string_view text, const std::string& name, const std::vector<std::string>& assignments) {
  return load_with(assignments, [&](ConfigSchema& schema) { schema.load_text(text, name); });
}

}  // namespace ms::cost
