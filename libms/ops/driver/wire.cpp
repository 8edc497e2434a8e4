#include "driver/wire.h"

#include "base/error.h"
#include "base/json.h"

namespace ms::driver {
namespace {

constexpr int kMostRanks = 4096;  // of one node

template <class F>
auto understand(const std::string& line, F&& f) {
  try {
    return f(Json::parse(line, {.max_depth = 8}));
  } catch (const JsonError& error) {
    throw Error("driver.wire", Blame::peer, fmt::format("a message of the peer cannot be parsed: {}", error.what()));
  }
}

char state_char(const std::string& text) { return text.size() == 1 ? text[0] : '?'; }

void check_size(const Json& list) {
  if (list.size() > kMostRanks) throw JsonError("too many ranks");
}

}  // namespace

std::string agent_role(int job) { return fmt::format("agent of job {}", job); }

std::string joiner_text(const Greeting& greeting, const std::string& nonce, const link::Address& driver) {
  return fmt::format("ms-driver 2 {} {} {} {} {}", greeting.role, greeting.node, nonce, greeting.nonce, driver.str());
}
std::string driver_text(const std::string& nonce, const link::Address& driver) {
  return fmt::format("ms-driver 2 driver {} {} ", nonce, driver.str());
}

std::string to_json(const Greeting& g) {
  return Json{{"role", g.role}, {"node", g.node}, {"nonce", g.nonce}, {"credential", g.credential}}.dump();
}
Greeting read_greeting(const std::string& line) {
  return understand(line, [](const Json& json) {
    Greeting greeting;
    json.get_to("role", greeting.role);
    json.get_to("node", greeting.node);
    json.get_to("nonce", greeting.nonce);
    json.get_to("credential", greeting.credential);
    return greeting;
  });
}

std::string to_json(const Report& report) {
  Json ranks = Json::array();
  for (const RankState& r : report.ranks) {
    Json rank{{"rank", r.rank}, {"pid", r.pid},         {"alive", r.alive},         {"state", std::string(1, r.state)},
              {"step", r.step}, {"section", r.section}, {"section_s", r.section_s}, {"cpu", r.cpu}};
    if (!r.numbers.empty()) rank["numbers"] = r.numbers;
    ranks.push_back(std::move(rank));
  }
  Json json{{"report", report.number}, {"attempt", report.attempt}, {"ranks", std::move(ranks)}};
  if (!report.took.empty()) json["took"] = report.took;
  if (report.segments != 0) json["segments"] = report.segments;
  for (const net::PeerLoss& loss : report.losses) {
    json["losses"].push_back({{"peer", loss.peer}, {"sent", loss.sent}, {"again", loss.again}, {"looks", loss.looks}});
  }
  if (!report.addresses.empty()) json["addresses"] = report.addresses;
  if (!report.unheard.empty()) json["unheard"] = report.unheard;
  if (!report.finding.empty()) json["finding"] = report.finding;
  if (report.clock_jump_s != 0) json["clock_jump_s"] = report.clock_jump_s;
  return json.dump();
}
std::string to_json(const Order& order) {
  Json json{{"order", order.what}, {"attempt", order.attempt}};
  if (order.ras) json["ras"] = true;
  return json.dump();
}
Order read_order(const std::string& line) {
  return understand(line, [](const Json& json) {
    return Order{.what = json.get<std::string>("order"),
                 .attempt = json.get<int>("attempt"),
                 .ras = json.contains("ras") && json.get<bool>("ras")};
  });
}

std::string to_json(const Answer& answer) {
  Json tasks = Json::array();
  for (const TaskEvidence& t : answer.tasks) {
    tasks.push_back({{"rank", t.rank},
                     {"pid", t.pid},
                     {"state", std::string(1, t.state)},
                     {"cpu", t.cpu},
                     {"waits_in", t.waits_in},
                     {"stack", t.stack}});
  }
  return Json{{"answer", answer.to}, {"attempt", answer.attempt}, {"count", answer.count}, {"tasks", std::move(tasks)}}
      .dump();
}

AgentSays read_agent(const std::string& line) {
  return understand(line, [](const Json& json) {
    AgentSays says;
    if (json.contains("report")) {
      Report& report = says.report.emplace();
      json.get_to("report", report.number);
      json.get_to("attempt", report.attempt);
      if (json.contains("took")) json.get_to("took", report.took);
      if (json.contains("segments")) json.get_to("segments", report.segments);
      if (json.contains("addresses")) json.get_to("addresses", report.addresses);
      if (const Json* losses = json.find("losses")) {
        for (const Json& loss : *losses) {
          if (report.losses.size() == kMostLosses) throw JsonError("too many losses");
          report.losses.push_back({.peer = loss.get<std::string>("peer"),
                                   .sent = loss.get<std::int64_t>("sent"),
                                   .again = loss.get<std::int64_t>("again"),
                                   .looks = loss.get<int>("looks")});
        }
      }
      if (json.contains("unheard")) json.get_to("unheard", report.unheard);
      if (json.contains("finding")) json.get_to("finding", report.finding);
      if (json.contains("clock_jump_s")) json.get_to("clock_jump_s", report.clock_jump_s);
      check_size(json.at("ranks"));
      for (const Json& rank : json.at("ranks")) {
        RankState r;
        rank.get_to("rank", r.rank);
        rank.get_to("pid", r.pid);
        rank.get_to("alive", r.alive);
        r.state = state_char(rank.get<std::string>("state"));
        rank.get_to("step", r.step);
        rank.get_to("section", r.section);
        rank.get_to("section_s", r.section_s);
        rank.get_to("cpu", r.cpu);
        if (const Json* numbers = rank.find("numbers")) {
          for (const Json::Member& number : numbers->items()) {
            if (number.value.is_number()) r.numbers[number.key] = number.value.get<double>();
          }
        }
        report.ranks.push_back(std::move(r));
      }
      return says;
    }
    Answer& answer = says.answer.emplace();
    json.get_to("answer", answer.to);
    json.get_to("attempt", answer.attempt);
    json.get_to("count", answer.count);
    check_size(json.at("tasks"));
    for (const Json& task : json.at("tasks")) {
      TaskEvidence t;
      task.get_to("rank", t.rank);
      task.get_to("pid", t.pid);
      t.state = state_char(task.get<std::string>("state"));
      task.get_to("cpu", t.cpu);
      task.get_to("waits_in", t.waits_in);
      task.get_to("stack", t.stack);
      answer.tasks.push_back(std::move(t));
    }
    return says;
  });
}

}  // namespace ms::driver
