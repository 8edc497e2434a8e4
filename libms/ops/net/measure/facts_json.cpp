#include "net/measure/facts_json.h"

#include "base/json.h"
#include "base/text.h"

namespace ms::net {
namespace {

template <class F>
auto facts_in(const std::string& text, F&& f) {
  try {
    return f(Json::parse(text, {.max_depth = 8}));
  } catch (const JsonError& error) {
    throw Error("net.wire", Blame::fabric, fmt::format("cannot be parsed: {}", plain_text(error.what(), 120)));
  }
}

}  // namespace

std::string to_json(const Snapshot& snapshot) {
  Json ports = Json::object();
  for (const auto& [name, port] : snapshot.ports)
    ports[name] = Json{{"up", port.is_up}, {"hardware", port.is_hardware}, {"counters", port.values}};
  return Json{{"schema", 1}, {"wall_s", snapshot.wall_s}, {"ports", ports}, {"restricted", snapshot.restricted}}.dump();
}

Snapshot read_snapshot(const std::string& text) {
  return facts_in(text, [](const Json& json) {
    Snapshot snapshot;
    json.get_to("wall_s", snapshot.wall_s);
    for (const auto& [name, port] : json.at("ports").items()) {
      PortCounts& counts = snapshot.ports[name];
      port.get_to("up", counts.is_up);
      port.get_to("hardware", counts.is_hardware);
      port.get_to("counters", counts.values);
    }
    json.get_to("restricted", snapshot.restricted);
    return snapshot;
  });
}

std::string to_json(const std::map<std::string, Snapshot>& snapshots) {
  Json json = Json::object();
  for (const auto& [node, snapshot] : snapshots) json[node] = Json::parse(to_json(snapshot));
  return json.dump() + "\n";
}
std::map<std::string, Snapshot> read_snapshots(const std::string& text) {
  return facts_in(text, [](const Json& json) {
    std::map<std::string, Snapshot> snapshots;
    for (const auto& [node, snapshot] : json.items()) snapshots[node] = read_snapshot(snapshot.dump());
    return snapshots;
  });
}

std::string to_json(const FabricFacts& facts) {
  Json interfaces = Json::object(), adapters = Json::object();
  for (const auto& [name, i] : facts.interfaces)
    interfaces[name] = Json{{"up", i.is_up}, {"mtu", i.mtu}, {"speed_mbps", i.speed_mbps}};
  for (const auto& [name, a] : facts.adapters) {
    Json gids = Json::array();
    for (const Gid& gid : a.gids) gids.push_back(Json{{"index", gid.index}, {"type", gid.type}, {"ipv4", gid.is_ipv4}});
    adapters[name] = Json{{"state", a.state},
                          {"link_layer", a.link_layer},
                          {"rate", a.rate},
                          {"interface", a.interface},
                          {"traffic_class", a.traffic_class},
                          {"gids", gids},
                          {"ecn_np", a.ecn_np},
                          {"ecn_rp", a.ecn_rp}};
  }
  return Json{{"environment", facts.environment},
              {"interfaces", interfaces},
              {"adapters", adapters},
              {"not_readable", facts.not_readable}}
      .dump();
}

FabricFacts read_facts(const std::string& text) {
  return facts_in(text, [](const Json& json) {
    FabricFacts facts;
    json.get_to("environment", facts.environment);
    for (const auto& [name, i] : json.at("interfaces").items())
      facts.interfaces[name] = {
          .is_up = i.get<bool>("up"), .mtu = i.get<int>("mtu"), .speed_mbps = i.get<std::int64_t>("speed_mbps")};
    for (const auto& [name, a] : json.at("adapters").items()) {
      AdapterFacts& adapter = facts.adapters[name];
      a.get_to("state", adapter.state);
      a.get_to("link_layer", adapter.link_layer);
      a.get_to("rate", adapter.rate);
      a.get_to("interface", adapter.interface);
      a.get_to("traffic_class", adapter.traffic_class);
      for (const Json& gid : a.at("gids"))
        adapter.gids.push_back(
            {.index = gid.get<int>("index"), .type = gid.get<std::string>("type"), .is_ipv4 = gid.get<bool>("ipv4")});
      a.get_to("ecn_np", adapter.ecn_np);
      a.get_to("ecn_rp", adapter.ecn_rp);
    }
    json.get_to("not_readable", facts.not_readable);
    return facts;
  });
}

}  // namespace ms::net
