#include "predict/predictor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "base/user_path.h"
#include "predict/evaluate.h"

namespace ms::predict {
namespace {

constexpr std::string_view kFormat = "ms-predict";
constexpr int kVersion = 3;
constexpr std::size_t kMaxModelBytes = std::size_t{1} << 28;
constexpr float kLeastOdds = 0.05F;  // below it a reason is noise
constexpr float kUnusual = 2;        // standard deviations: what is nearer to the median is no reason

std::string reason_of(const Column& column, float value) {
  if (std::isnan(value)) return column.name + ": not known";
  if (column.holds != Holds::distance) {
    return fmt::format("{}: {:.4g}", column.name, column.holds == Holds::log ? std::expm1(value) : value);
  }
  return fmt::format("{}: {:.1f} sigma {} the median", column.name, std::abs(value), value < 0 ? "below" : "above");
}

std::vector<float> medians(const TrainingSet& set) {
  std::vector<float> out, values;
  for (std::size_t c = 0; c < set.rows.width; ++c) {
    values.clear();
    for (const std::size_t row : set.chosen) {
      const float value = set.rows.row(row)[c];
      if (!std::isnan(value)) values.push_back(value);
    }
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    if (!values.empty()) std::nth_element(values.begin(), middle, values.end());
    out.push_back(values.empty() ? 0 : *middle);
  }
  return out;
}

Json proof_json(const std::optional<Proof>& proof) {
  if (!proof) return nullptr;
  return {{"k", proof->k},
          {"precision", proof->precision},
          {"low", proof->low},
          {"high", proof->high},
          {"base_rate", proof->base_rate},
          {"shuffled", proof->shuffled},
          {"beyond_high", proof->beyond_high},
          {"skill", proof->skill}};
}

double share(const Json& json, std::string_view key) {
  const auto value = json.get<double>(key);
  if (!(value >= 0 && value <= 1)) throw JsonError(fmt::format("{} is not from 0 to 1", key));
  return value;
}

double days(const Json& json, std::string_view key, double least) {
  const auto value = json.get<double>(key);
  if (!(value >= least && value < 1e6)) throw JsonError(fmt::format("{} is no number of days", key));
  return value;
}

Predictor read_model(const Json& json) {
  Predictor out;
  const Json& layout = json.at("layout");
  for (const auto& [key, names] : {std::pair{"kinds", &out.layout.kinds}, std::pair{"facts", &out.layout.facts},
                                   std::pair{"metrics", &out.layout.metrics}}) {
    layout.get_to(key, *names);
    if (names->size() > kMaxNames) throw JsonError(fmt::format("{} are too many", key));
  }
  out.layout.bin_days = days(layout, "bin_days", 1e-3);
  out.task = {.lead_days = days(json, "lead_days", 0),
              .horizon_days = days(json, "horizon_days", 1e-3),
              .target = json.get<std::string>("target")};
  out.trained_until = json.get<double>("trained_until");
  out.typical = finite_numbers(json, "typical", out.layout.width());
  if (const Json& proof = json.at("proof"); !proof.is_null()) {
    out.proof = {.k = proof.get<std::size_t>("k"),
                 .precision = share(proof, "precision"),
                 .low = share(proof, "low"),
                 .high = share(proof, "high"),
                 .base_rate = share(proof, "base_rate"),
                 .shuffled = share(proof, "shuffled"),
                 .beyond_high = share(proof, "beyond_high"),
                 .skill = proof.get<bool>("skill")};
  }
  std::vector<std::string> names;
  for (const Json& member : json.at("members")) names.push_back(member.get<std::string>("name"));
  out.method = method_of(json.get<std::string>("method"), names);
  for (std::size_t i = 0; i < names.size(); ++i) {
    out.members.push_back(load_model(*out.method.members[i], json.at("members")[i], out.layout));
  }
  return out;
}

}  // namespace

std::vector<std::vector<float>> Predictor::odds(std::span<const float> values) const {
  std::vector<std::vector<float>> all;
  for (const auto& member : members) {
    all.emplace_back(values.size() / layout.width());
    member->score(values, layout.width(), all.back());
  }
  return all;
}

float Predictor::chance(std::span<const std::vector<float>> member_odds, std::size_t row) const {
  float sum = 0;
  const std::size_t first = method.combine == Combine::cascade ? member_odds.size() - 1 : 0;
  for (std::size_t i = first; i < member_odds.size(); ++i) sum += member_odds[i][row];
  return 1 / (1 + std::exp(-sum / static_cast<float>(member_odds.size() - first)));
}

std::vector<Reason> Predictor::reasons(std::span<const float> row, std::size_t most) const {
  const std::vector<Column> columns = layout.columns();
  std::vector<float> values(row.begin(), row.end());
  std::vector<std::pair<std::size_t, std::size_t>> groups;  // begin and end in `columns`
  for (std::size_t begin = 0, end = 0; begin < columns.size(); begin = end) {
    while (end < columns.size() && columns[end].group == columns[begin].group) ++end;
    groups.emplace_back(begin, end);
    std::vector<float> without(row.begin(), row.end());
    std::copy(typical.begin() + begin, typical.begin() + end, without.begin() + begin);
    values.insert(values.end(), without.begin(), without.end());
  }
  const std::vector<std::vector<float>> all = odds(values);
  std::vector<Reason> out;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    float fall = 0;
    for (const std::vector<float>& member : all) fall += (member[0] - member[i + 1]) / static_cast<float>(all.size());
    if (fall < kLeastOdds) continue;
    std::size_t shown = groups[i].first;  // of distances the largest
    const Column& first = columns[shown];
    if (first.holds == Holds::distance) {
      for (std::size_t c = shown; c < groups[i].second; ++c) {
        if (std::isnan(row[shown]) || std::abs(row[c]) > std::abs(row[shown])) shown = c;
      }
      if (!(std::abs(row[shown]) >= kUnusual)) continue;
    }
    const bool series = shown >= layout.table_columns();
    out.push_back({series ? first.name : reason_of(columns[shown], row[shown]), fall});
  }
  std::sort(out.begin(), out.end(), [](const Reason& a, const Reason& b) { return a.odds > b.odds; });
  out.resize(std::min(out.size(), most));
  return out;
}

void Predictor::save(const std::string& path) const {
  Json list = Json::array();
  for (std::size_t i = 0; i < members.size(); ++i) {
    Json member{{"name", method.members[i]->name}};
    member.update(members[i]->save());
    list.push_back(std::move(member));
  }
  const Json body{
      {"layout",
       {{"kinds", layout.kinds}, {"facts", layout.facts}, {"metrics", layout.metrics}, {"bin_days", layout.bin_days}}},
      {"lead_days", task.lead_days},
      {"horizon_days", task.horizon_days},
      {"target", task.target},
      {"trained_until", trained_until},
      {"typical", typical},
      {"proof", proof_json(proof)},
      {"method", method.name},
      {"members", std::move(list)}};
  const std::string text = body.dump();
  const Json head{{"format", kFormat}, {"version", kVersion}, {"xxh64", hash_hex(xxh64(text))}};
  write_user_file(path, head.dump() + "\n" + text + "\n");
}

Predictor train(const Dataset& data, const Method& method, const Layout& layout, const Task& task, double window_days,
                double step_days) {
  const double ahead = task.lead_days + task.horizon_days;
  const double from = std::max(data.first_day, data.last_day - ahead - window_days);
  const Rows rows = rows_at(data, layout, task, every(from, data.last_day - ahead, step_days));
  const TrainingSet set =
      training_set(rows, layout, task, from, data.last_day, [](std::uint32_t /*unit*/) { return true; });
  Predictor out{.method = method, .layout = layout, .task = task, .trained_until = data.last_day};
  for (const ModelKind* kind : method.members) out.members.push_back(train_model(*kind, set));
  out.typical = medians(set);
  return out;
}

Predictor load_predictor(const std::string& path) {
  const std::string text = read_user_file(path, kMaxModelBytes);
  const auto refuse = [&](const std::string& why) {
    return user_error("predict.file", fmt::format("{} {}", path, why), "ms-diag predict train writes such files");
  };
  const std::size_t line = std::min(text.find('\n'), text.size());
  const std::string_view body = trim(std::string_view(text).substr(line));
  try {
    const std::optional<Json> head = Json::try_parse(std::string_view(text).substr(0, line));
    if (!head || !head->is_object() || !head->contains("format") || head->at("format").get<std::string>() != kFormat) {
      throw refuse("is no model of ms-diag predict");
    }
    if (const auto version = head->get<int>("version"); version != kVersion) {
      throw refuse(fmt::format("is of version {} of the format, and this program reads version {}", version, kVersion));
    }
    if (head->get<std::string>("xxh64") != hash_hex(xxh64(body))) throw refuse("is damaged: its checksum differs");
    return read_model(Json::parse(body));
  } catch (const JsonError& error) { throw refuse(fmt::format("is damaged: {}", error.what())); }
}

}  // namespace ms::predict
