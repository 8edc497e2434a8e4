#include "net/agents/wire.h"

#include <nlohmann/json.hpp>

#include "base/json_depth.h"

namespace ms::net {
namespace {

using Json = nlohmann::json;

// Field by field, in one place for both directions: `f` is called with the name and the field.
template <class Spec, class F>
void each(Spec& s, F f) requires std::is_same_v<std::remove_const_t<Spec>, PairSpec> {
  f("pings", s.pings);
  f("ping_s", s.ping_s);
  f("seconds", s.seconds);
  f("bytes", s.bytes);
  f("back", s.back);
  f("both_at_once", s.both_at_once);
  f("flows", s.flows);
  f("max_gbps", s.max_gbps);
  f("datagrams", s.datagrams);
  f("datagrams_s", s.datagrams_s);
  f("sizes", s.sizes);
  f("rdma", s.rdma);
}
template <class W, class F>
void each(W& w, F f) requires std::is_same_v<std::remove_const_t<W>, Way> {
  f("gbps", w.gbps);
  f("flow_gbps", w.flow_gbps);
  f("sent", w.sent);
  f("lost", w.lost);
  f("dropped", w.dropped);
  f("mtu", w.mtu);
  f("large_pass", w.large_pass);
}
template <class C, class F>
void each(C& c, F f) requires std::is_same_v<std::remove_const_t<C>, NodeCounts> {
  f("carrier_losses", c.carrier_losses);
  f("carrier_gains", c.carrier_gains);
  f("errors", c.errors);
  f("retransmits", c.retransmits);
  f("segments", c.segments);
}

template <class T>
Json write(const T& value) {
  Json json;
  each(value, [&](const char* name, const auto& field) { json[name] = field; });
  return json;
}
template <class T>
T read(const Json& json) {
  T value;
  each(value, [&](const char* name, auto& field) { json.at(name).get_to(field); });
  return value;
}

template <class F>
auto understood(const std::string& line, F&& f) {
  try {
    constexpr std::size_t kDeepest = 8;
    if (json_deeper_than(line, kDeepest)) throw Error("net.wire", Blame::fabric, "an answer is nested too deeply");
    return f(Json::parse(line));
  } catch (const nlohmann::json::exception& error) {
    throw Error("net.wire", Blame::fabric,
                fmt::format("what the other end says is not understood (error {})", error.id));
  }
}

}  // namespace

std::string to_json(const Invitation& i) {
  return Json{{"addresses", i.addresses}, {"secret", i.secret}, {"interface", i.interface},
              {"node", i.node},           {"rdma", i.rdma},     {"hcas", i.hcas}}
      .dump();
}
Invitation read_invitation(const std::string& line) {
  return understood(line, [](const Json& json) {
    return Invitation{.addresses = json.at("addresses"),
                      .secret = json.at("secret"),
                      .interface = json.at("interface"),
                      .node = json.at("node"),
                      .rdma = json.at("rdma"),
                      .hcas = json.at("hcas")};
  });
}

std::string to_json(const Member& m) {
  return Json{{"node", m.node}, {"address", m.address.str()}, {"interface", m.interface},
              {"mtu", m.mtu},   {"link_gbps", m.link_gbps},   {"no_rdma", m.no_rdma}}
      .dump();
}
Member read_member(const std::string& line) {
  return understood(line, [](const Json& json) {
    const std::optional<Address> address = parse_address(json.at("address").get<std::string>());
    if (!address) throw Error("net.wire", Blame::fabric, "an agent does not say where it is");
    return Member{.node = json.at("node"),
                  .address = *address,
                  .interface = json.at("interface"),
                  .mtu = json.at("mtu"),
                  .link_gbps = json.at("link_gbps"),
                  .no_rdma = json.at("no_rdma")};
  });
}

std::string to_json(const TestOrder& o) {
  return Json{
      {"id", o.id},           {"ask", o.ask}, {"address", o.address}, {"node", o.node}, {"source_port", o.source_port},
      {"spec", write(o.spec)}}
      .dump();
}
TestOrder read_order(const std::string& line) {
  return understood(line, [](const Json& json) {
    const PairSpec spec = read<PairSpec>(json.at("spec"));
    constexpr int kMost = 1 << 20;
    if (spec.flows < 1 || spec.flows > 1024 || spec.pings < 0 || spec.pings > kMost || spec.datagrams < 0 ||
        spec.datagrams > kMost || !(spec.seconds >= 0 && spec.seconds <= 60) ||
        !(spec.datagrams_s >= 0 && spec.datagrams_s <= 60) || spec.bytes < 1) {
      throw Error("net.wire", Blame::fabric, "an order asks for what nobody would");
    }
    return TestOrder{.id = json.at("id"),
                     .ask = json.at("ask"),
                     .address = json.at("address"),
                     .node = json.at("node"),
                     .source_port = json.at("source_port"),
                     .spec = spec};
  });
}

std::string to_json(const TestAnswer& a) {
  const PairResult& r = a.result;
  return Json{{"id", a.id},
              {"text", a.text},
              {"error", r.error},
              {"us", {r.least_us, r.p50_us, r.p99_us}},
              {"there", write(r.there)},
              {"back", write(r.back)},
              {"counts", {write(r.counts_a), write(r.counts_b)}},
              {"seconds", r.seconds}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}
TestAnswer read_answer(const std::string& line) {
  return understood(line, [](const Json& json) {
    PairResult r;
    json.at("error").get_to(r.error);
    const Json& us = json.at("us");
    r.least_us = us.at(0);
    r.p50_us = us.at(1);
    r.p99_us = us.at(2);
    r.there = read<Way>(json.at("there"));
    r.back = read<Way>(json.at("back"));
    r.counts_a = read<NodeCounts>(json.at("counts").at(0));
    r.counts_b = read<NodeCounts>(json.at("counts").at(1));
    json.at("seconds").get_to(r.seconds);
    return TestAnswer{.id = json.at("id"), .result = std::move(r), .text = json.at("text")};
  });
}

}  // namespace ms::net
