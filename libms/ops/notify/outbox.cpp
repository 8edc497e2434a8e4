#include "notify/outbox.h"

#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"

namespace ms::notify {
namespace {

constexpr std::size_t kMostStanding = 1000;

std::string path_in(const std::string& directory) { return directory + "/outbox.json"; }

template <class T>
T get_or(const Json& json, const char* key, T other) {
  const Json* found = json.find(key);
  if (found == nullptr) return other;
  if constexpr (std::is_arithmetic_v<T>) {
    return found->is_number() ? found->get<T>() : other;
  } else {
    return found->is_string() ? found->get<T>() : other;
  }
}

Json standing_json(const Standing& standing) {
  const health::Event& event = standing.event;
  return {{"kind", event.kind},       {"node", event.node},           {"code", event.code},
          {"message", event.message}, {"job", event.job_id},          {"strikes", event.strikes},
          {"began", event.wall_s},    {"ends", standing.ends_wall_s}, {"sent", standing.sent_wall_s}};
}

Standing standing_of(const Json& json) {
  return {.event = {.wall_s = get_or(json, "began", 0.0),
                    .kind = get_or(json, "kind", std::string("drain")),
                    .node = get_or(json, "node", std::string()),
                    .code = get_or(json, "code", std::string()),
                    .message = get_or(json, "message", std::string()),
                    .job_id = get_or(json, "job", std::uint32_t{0}),
                    .strikes = get_or(json, "strikes", 0)},
          .ends_wall_s = get_or(json, "ends", 0.0),
          .sent_wall_s = get_or(json, "sent", 0.0)};
}

}  // namespace

bool Outbox::is_sent(const std::string& target, const std::string& name) const {
  const auto names = sent.find(target);
  return names != sent.end() && names->second.contains(name);
}

void Outbox::forget_all_but(const std::set<std::string>& names) {
  for (auto& [target, known] : sent) {
    std::erase_if(known, [&](const std::string& name) { return !names.contains(name); });
  }
}

std::string outbox_json(const Outbox& outbox) {
  Json json{{"schema", 1}, {"sent", Json::object()}, {"standing", Json::array()}};
  for (const auto& [target, names] : outbox.sent) json["sent"][target] = names;
  for (const Standing& standing : outbox.standing) json["standing"].push_back(standing_json(standing));
  return json.dump(1) + "\n";
}

Outbox parse_outbox(const std::string& text) {
  const std::optional<Json> json = Json::try_parse(text);
  Outbox outbox;
  if (!json) return outbox;
  if (const Json* sent = json->find("sent"); sent != nullptr && sent->is_object()) {
    for (const auto& [target, names] : sent->items()) {
      if (!names.is_array()) continue;
      for (const Json& name : names) {
        if (name.is_string()) outbox.sent[target].insert(name.get<std::string>());
      }
    }
  }
  if (const Json* standing = json->find("standing"); standing != nullptr && standing->is_array()) {
    for (const Json& row : *standing) {
      if (row.is_object() && outbox.standing.size() < kMostStanding) outbox.standing.push_back(standing_of(row));
    }
  }
  return outbox;
}

Outbox load_outbox(const std::string& directory) {
  if (::access(path_in(directory).c_str(), F_OK) != 0) return {};
  const std::string text = read_file(path_in(directory));
  if (!Json::try_parse(text)) log::warn("notify", "{} is damaged and counts as empty", path_in(directory));
  return parse_outbox(text);
}

void save_outbox(const std::string& directory, const Outbox& outbox) {
  make_directories(directory);
  write_file_atomic(path_in(directory), outbox_json(outbox));
}

}  // namespace ms::notify
