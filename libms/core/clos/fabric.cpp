#include "clos/fabric.h"

#include <fmt/format.h>

#include "base/error.h"

namespace ms::clos {
namespace {

void check(ConfigSchema& schema, const Fabric& fabric) {
  const auto require = [&](bool holds, const char* key, std::string message) {
    if (!holds) schema.add_problem(key, std::move(message));
  };
  const HostConfig& host = fabric.host;
  require(host.ranks % host.nics == 0, "host.nics",
          fmt::format("host.nics: {} does not divide the {} ranks of a host", host.nics, host.ranks));
  require(fabric.leaf.uplinks % fabric.spine.switches == 0, "spine.switches",
          fmt::format("spine.switches: {} does not divide the {} uplinks of a leaf switch", fabric.spine.switches,
                      fabric.leaf.uplinks));
  require(!fabric.ecmp.fields.empty(), "ecmp.fields", "ecmp.fields: needs at least one field");
}

template <class F>
Fabric load_with(const std::vector<std::string>& assignments, F&& read) {
  Fabric fabric;
  ConfigSchema schema;
  bind(schema, fabric);
  read(schema);
  for (const std::string& assignment : assignments) schema.set(assignment, "--set-fabric");
  check(schema, fabric);
  schema.throw_if_problems();
  return fabric;
}

}  // namespace

double Fabric::oversubscription() const {
  const double nics = static_cast<double>(leaf.hosts * host.nics) / leaves_per_set();
  return nics * static_cast<double>(host.ports) * host.port_gbps /
         (static_cast<double>(leaf.uplinks) * leaf.uplink_gbps);
}

void bind(ConfigSchema& schema, Fabric& fabric) {
  schema.section("host", "A host and its NICs.", fabric.host, kHostFields);
  schema.section("leaf", "The leaf switches, to which NICs are connected.", fabric.leaf, kLeafFields);
  schema.section("spine", "The spine switches, which connect all leaf switches.", fabric.spine, kSpineFields);
  schema.section("roce", "The connections of NCCL.", fabric.roce, kRoceFields);
  schema.section("ecmp", "The choice of a path by the switches.", fabric.ecmp, kEcmpFields);
}

Fabric load_fabric(const std::string& path, const std::vector<std::string>& assignments) {
  return load_with(assignments, [&](ConfigSchema& schema) { schema.load_file(path); });
}

Fabric load_fabric_text(std::string_view text, const std::string& name, const std::vector<std::string>& assignments) {
  return load_with(assignments, [&](ConfigSchema& schema) { schema.load_text(text, name); });
}

}  // namespace ms::clos
