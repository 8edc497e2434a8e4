#include "health/act/state_json.h"

#include <cmath>

#include "base/json.h"
#include "base/number.h"

namespace ms::health {
namespace {

constexpr int kSchema = 1;

// Messages may quote a device's bytes: what is not UTF-8 is replaced.
std::string dump(const Json& json) { return json.dump_ascii(); }

std::optional<Json> object(std::string_view text) {
  std::optional<Json> json = Json::try_parse(text);
  return json && json->is_object() ? std::move(json) : std::nullopt;
}

double number(const Json& json, const char* key) {
  const Json* found = json.find(key);
  if (found == nullptr || !found->is_number()) return 0;
  const double value = found->get<double>();
  return std::isfinite(value) ? value : 0;
}

template <class T>
T whole(const Json& json, const char* key) {
  const double value = number(json, key);
  return value >= 0 ? to_integer<T>(value).value_or(0) : T{0};
}

std::string text(const Json& json, const char* key) {
  const Json* found = json.find(key);
  return found != nullptr && found->is_string() ? found->text() : std::string();
}

}  // namespace

std::string state_to_json(const State& state) {
  Json counters = Json::object();
  for (const auto& [name, counter] : state.counters) {
    counters[name] = {{"value", counter.value}, {"wall_s", counter.wall_s}};
  }
  return dump({{"schema", kSchema},
               {"last_undrain_wall_s", state.last_undrain_wall_s},
               {"last_undrain_s", state.last_undrain_s},
               {"undrain_boot", state.undrain_boot},
               {"last_epilog_wall_s", state.last_epilog_wall_s},
               {"last_active_wall_s", state.last_active_wall_s},
               {"strikes", state.strikes},
               {"counters", std::move(counters)}}) +
         "\n";
}

State state_from_json(std::string_view data) {
  State state;
  const std::optional<Json> json = object(data);
  if (!json || whole<int>(*json, "schema") != kSchema) return state;
  state.last_undrain_wall_s = number(*json, "last_undrain_wall_s");
  state.last_undrain_s = number(*json, "last_undrain_s");
  state.undrain_boot = text(*json, "undrain_boot");
  state.last_epilog_wall_s = number(*json, "last_epilog_wall_s");
  state.last_active_wall_s = number(*json, "last_active_wall_s");
  state.strikes = whole<int>(*json, "strikes");
  const Json* counters = json->find("counters");
  if (counters == nullptr || !counters->is_object()) return state;
  for (const auto& [name, counter] : counters->items()) {
    if (counter.is_object()) state.counters[name] = {number(counter, "value"), number(counter, "wall_s")};
  }
  return state;
}

std::string history_to_json(const HistoryEntry& entry) {
  return dump({{"wall_s", entry.wall_s},
               {"event", entry.event},
               {"code", entry.code},
               {"message", entry.message},
               {"job_id", entry.job_id},
               {"strikes", entry.strikes}});
}

std::optional<HistoryEntry> history_from_json(std::string_view line) {
  const std::optional<Json> json = object(line);
  if (!json || text(*json, "event").empty()) return std::nullopt;
  return HistoryEntry{.wall_s = number(*json, "wall_s"),
                      .event = text(*json, "event"),
                      .code = text(*json, "code"),
                      .message = text(*json, "message"),
                      .job_id = whole<std::uint32_t>(*json, "job_id"),
                      .strikes = whole<int>(*json, "strikes")};
}

std::string event_to_json(const Event& event) {
  return dump({{"schema", kSchema},
               {"wall_s", event.wall_s},
               {"kind", event.kind},
               {"node", event.node},
               {"code", event.code},
               {"message", event.message},
               {"job_id", event.job_id},
               {"strikes", event.strikes}}) +
         "\n";
}

std::optional<Event> event_from_json(std::string_view data) {
  const std::optional<Json> json = object(data);
  if (!json || whole<int>(*json, "schema") != kSchema || text(*json, "kind").empty()) return std::nullopt;
  return Event{.wall_s = number(*json, "wall_s"),
               .kind = text(*json, "kind"),
               .node = text(*json, "node"),
               .code = text(*json, "code"),
               .message = text(*json, "message"),
               .job_id = whole<std::uint32_t>(*json, "job_id"),
               .strikes = whole<int>(*json, "strikes")};
}

}  // namespace ms::health
