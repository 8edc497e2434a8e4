#include "net/measure/facts_json.h"

#include <nlohmann/json.hpp>

#include "base/json_depth.h"

namespace ms::net {
namespace {

using Json = nlohmann::ordered_json;

template <class F>
auto understood(const std::string& text, F&& f) {
  try {
    constexpr std::size_t kDeepest = 8;
    if (json_deeper_than(text, kDeepest)) throw Error("net.wire", Blame::fabric, "nested too deeply");
    return f(Json::parse(text));
  } catch (const nlohmann::json::exception& error) {
    throw Error("net.wire", Blame::fabric, fmt::format("not understood: {}", error.what()));
  }
}

std::string dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

std::string to_json(const Snapshot& snapshot) {
  Json ports = Json::object();
  for (const auto& [name, port] : snapshot.ports)
    ports[name] = {{"up", port.is_up}, {"hardware", port.is_hardware}, {"counters", port.values}};
  return dumped({{"schema", 1}, {"wall_s", snapshot.wall_s}, {"ports", ports}, {"restricted", snapshot.restricted}});
}

Snapshot read_snapshot(const std::string& text) {
  return understood(text, [](const Json& json) {
    Snapshot snapshot;
    json.at("wall_s").get_to(snapshot.wall_s);
    for (const auto& [name, port] : json.at("ports").items()) {
      PortCounts& counts = snapshot.ports[name];
      port.at("up").get_to(counts.is_up);
      port.at("hardware").get_to(counts.is_hardware);
      port.at("counters").get_to(counts.values);
    }
    json.at("restricted").get_to(snapshot.restricted);
    return snapshot;
  });
}

std::string to_json(const std::map<std::string, Snapshot>& snapshots) {
  Json json = Json::object();
  for (const auto& [node, snapshot] : snapshots) json[node] = Json::parse(to_json(snapshot));
  return dumped(json) + "\n";
}
std::map<std::string, Snapshot> read_snapshots(const std::string& text) {
  return understood(text, [](const Json& json) {
    std::map<std::string, Snapshot> snapshots;
    for (const auto& [node, snapshot] : json.items()) snapshots[node] = read_snapshot(snapshot.dump());
    return snapshots;
  });
}

std::string to_json(const FabricFacts& facts) {
  Json interfaces = Json::object(), adapters = Json::object();
  for (const auto& [name, i] : facts.interfaces)
    interfaces[name] = {{"up", i.is_up}, {"mtu", i.mtu}, {"speed_mbps", i.speed_mbps}};
  for (const auto& [name, a] : facts.adapters) {
    Json gids = Json::array();
    for (const Gid& gid : a.gids) gids.push_back({{"index", gid.index}, {"type", gid.type}, {"ipv4", gid.is_ipv4}});
    adapters[name] = {{"state", a.state},
                      {"link_layer", a.link_layer},
                      {"rate", a.rate},
                      {"interface", a.interface},
                      {"traffic_class", a.traffic_class},
                      {"gids", gids},
                      {"ecn_np", a.ecn_np},
                      {"ecn_rp", a.ecn_rp}};
  }
  return dumped({{"environment", facts.environment},
                 {"interfaces", interfaces},
                 {"adapters", adapters},
                 {"not_readable", facts.not_readable}});
}

FabricFacts read_facts(const std::string& text) {
  return understood(text, [](const Json& json) {
    FabricFacts facts;
    json.at("environment").get_to(facts.environment);
    for (const auto& [name, i] : json.at("interfaces").items())
      facts.interfaces[name] = {.is_up = i.at("up"), .mtu = i.at("mtu"), .speed_mbps = i.at("speed_mbps")};
    for (const auto& [name, a] : json.at("adapters").items()) {
      AdapterFacts& adapter = facts.adapters[name];
      a.at("state").get_to(adapter.state);
      a.at("link_layer").get_to(adapter.link_layer);
      a.at("rate").get_to(adapter.rate);
      a.at("interface").get_to(adapter.interface);
      a.at("traffic_class").get_to(adapter.traffic_class);
      for (const Json& gid : a.at("gids"))
        adapter.gids.push_back({.index = gid.at("index"), .type = gid.at("type"), .is_ipv4 = gid.at("ipv4")});
      a.at("ecn_np").get_to(adapter.ecn_np);
      a.at("ecn_rp").get_to(adapter.ecn_rp);
    }
    json.at("not_readable").get_to(facts.not_readable);
    return facts;
  });
}

}  // namespace ms::net
