#include "net/agents/wire.h"

#include <algorithm>

#include "base/json.h"
#include "base/text.h"

namespace ms::net {
namespace {

constexpr std::size_t kMaxText = 300;  // of what an agent says in words, on one line

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
  f("unreached", w.unreached);
  f("gbps", w.gbps);
  f("flow_gbps", w.flow_gbps);
  f("cpu_wait", w.cpu_wait);
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
  Json json = Json::object();
  each(value, [&](const char* name, const auto& field) { json[name] = field; });
  return json;
}
template <class T>
T read(const Json& json) {
  T value;
  each(value, [&](const char* name, auto& field) { json.get_to(name, field); });
  return value;
}

template <class F>
auto understood(const std::string& line, F&& f) {
  try {
    return f(Json::parse(line, {.max_depth = 8}));
  } catch (const JsonError& error) {
    throw Error("net.wire", Blame::fabric,
                fmt::format("a message of the peer cannot be parsed: {}", plain_text(error.what(), 120)));
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
    return Invitation{.addresses = json.get<std::vector<std::string>>("addresses"),
                      .secret = json.get<std::string>("secret"),
                      .interface = json.get<std::string>("interface"),
                      .node = json.get<std::string>("node"),
                      .rdma = json.get<bool>("rdma"),
                      .hcas = json.get<std::string>("hcas")};
  });
}

std::string to_json(const Member& m) {
  return Json{{"node", m.node}, {"address", m.address.str()}, {"interface", m.interface},
              {"mtu", m.mtu},   {"link_gbps", m.link_gbps},   {"no_rdma", m.no_rdma}}
      .dump();
}
Member read_member(const std::string& line) {
  return understood(line, [](const Json& json) {
    const std::optional<link::Address> address = link::parse_address(json.get<std::string>("address"));
    if (!address) throw Error("net.wire", Blame::fabric, "an agent does not say where it is");
    return Member{.node = json.get<std::string>("node"),
                  .address = *address,
                  .interface = plain_text(json.get<std::string>("interface"), kMaxText),
                  .mtu = json.get<int>("mtu"),
                  .link_gbps = json.get<double>("link_gbps"),
                  .no_rdma = plain_text(json.get<std::string>("no_rdma"), kMaxText)};
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
        !(spec.datagrams_s >= 0 && spec.datagrams_s <= 60) || spec.bytes < 1 ||
        !(spec.ping_s >= 0 && spec.ping_s <= 60) || !(spec.max_gbps >= 0 && spec.max_gbps <= 1e6)) {
      throw Error("net.wire", Blame::fabric, "an order is out of range");
    }
    return TestOrder{.id = json.get<int>("id"),
                     .ask = json.get<std::string>("ask"),
                     .address = json.get<std::string>("address"),
                     .node = json.get<std::string>("node"),
                     .source_port = json.get<int>("source_port"),
                     .spec = spec};
  });
}

std::string to_json(const TestAnswer& a) {
  const PairResult& r = a.result;
  return Json{{"id", a.id},
              {"text", a.text},
              {"error", r.error},
              {"us", {r.least_us, r.p50_us, r.p99_us}},
              {"cpu_wait_us", r.cpu_wait_us},
              {"there", write(r.there)},
              {"back", write(r.back)},
              {"counts", {write(r.counts_a), write(r.counts_b)}},
              {"seconds", r.seconds}}
      .dump();
}
std::string to_json(const link::Unauthenticated& s) {
  return Json{{"connections", s.connections}, {"evicted", s.evicted}}.dump();
}
link::Unauthenticated read_unauthenticated(const std::string& text) {
  return understood(text, [](const Json& json) {
    link::Unauthenticated unauthenticated;
    json.get_to("connections", unauthenticated.connections);
    json.get_to("evicted", unauthenticated.evicted);
    return unauthenticated;
  });
}

TestAnswer read_answer(const std::string& line) {
  return understood(line, [](const Json& json) {
    PairResult r;
    r.error = plain_text(json.get<std::string>("error"), kMaxText);
    const Json& us = json.at("us");
    r.least_us = us.at(0).get<double>();
    r.p50_us = us.at(1).get<double>();
    r.p99_us = us.at(2).get<double>();
    r.cpu_wait_us = std::max(json.get<double>("cpu_wait_us"), 0.0);
    r.there = read<Way>(json.at("there"));
    r.back = read<Way>(json.at("back"));
    for (Way* way : {&r.there, &r.back}) {
      way->unreached = plain_text(way->unreached, kMaxText);
      way->cpu_wait = std::clamp(way->cpu_wait, 0.0, 1.0);
    }
    r.counts_a = read<NodeCounts>(json.at("counts").at(0));
    r.counts_b = read<NodeCounts>(json.at("counts").at(1));
    json.get_to("seconds", r.seconds);
    return TestAnswer{.id = json.get<int>("id"), .result = std::move(r), .text = json.get<std::string>("text")};
  });
}

}  // namespace ms::net
