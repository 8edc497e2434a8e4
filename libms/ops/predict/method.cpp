#include "predict/method.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "base/error.h"
#include "base/text.h"

namespace ms::predict {
namespace {

constexpr double kCleared = 0.8;  // of all units, by the first of a cascade
constexpr std::size_t kParallel = 3;

struct Ensemble {
  std::string_view name, doc;
  Combine combine;
  std::array<std::string_view, 2> first;  // members of a cascade; a parallel one takes the first of the registry
};
constexpr std::array<Ensemble, 2> kEnsembles{
    {{"parallel", "the units that are in the top sets of the first three of these models", Combine::parallel, {}},
     {"cascade", "the CNN clears the healthy, the MLP decides", Combine::cascade, {"cnn", "mlp"}}}};

const Ensemble* find_ensemble(std::string_view name) {
  const auto found =
      std::find_if(kEnsembles.begin(), kEnsembles.end(), [&](const Ensemble& row) { return row.name == name; });
  return found == kEnsembles.end() ? nullptr : &*found;
}

Method single(const ModelKind& kind) { return {.name = std::string(kind.name), .members = {&kind}}; }

Method ensemble(const Ensemble& row) {
  Method method{.name = std::string(row.name), .combine = row.combine};
  if (row.combine == Combine::cascade) {
    for (const std::string_view name : row.first) method.members.push_back(find_model(name));
    return method;
  }
  for (const ModelKind* kind : model_kinds()) {
    if (method.members.size() < kParallel && kind->lacks().empty()) method.members.push_back(kind);
  }
  return method;
}

// Ranks from 0, the highest score first; equal scores share the mean of their ranks.
std::vector<float> ranks(const std::vector<float>& scores) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  std::vector<float> out(scores.size());
  for (std::size_t i = 0; i < order.size();) {
    std::size_t end = i;
    while (end < order.size() && scores[order[end]] == scores[order[i]]) ++end;
    const float rank = static_cast<float>(i + end - 1) / 2;
    for (; i < end; ++i) out[order[i]] = rank;
  }
  return out;
}

}  // namespace

std::vector<Method> methods_of(std::string_view names, std::vector<std::string>& notes) {
  std::vector<Method> methods;
  const std::vector<std::string> wanted = split(names, ',');
  const bool all = wanted == std::vector<std::string>{"all"};
  const bool many = all || std::find(wanted.begin(), wanted.end(), "parallel") != wanted.end();
  for (const ModelKind* kind : model_kinds()) {
    const bool named = std::find(wanted.begin(), wanted.end(), kind->name) != wanted.end();
    if (const std::string why = kind->lacks(); !why.empty()) {
      if (named) throw user_error("predict.model", fmt::format("{} cannot be trained here: {}", kind->name, why));
      if (many) notes.push_back(fmt::format("{} is left out: {}", kind->name, why));
    } else if (all) {
      methods.push_back(single(*kind));
    }
  }
  if (all) {
    for (const Ensemble& row : kEnsembles) methods.push_back(ensemble(row));
    return methods;
  }
  for (const std::string& name : wanted) {
    const ModelKind* kind = find_model(name);
    const Ensemble* row = find_ensemble(name);
    if (kind == nullptr && row == nullptr) {
      throw user_error("predict.model", fmt::format("there is no model '{}'", plain_text(name, 40)), method_docs());
    }
    methods.push_back(kind != nullptr ? single(*kind) : ensemble(*row));
  }
  return methods;
}

Method method_of(const std::string& name, const std::vector<std::string>& members) {
  Method method{.name = name};
  if (const Ensemble* row = find_ensemble(name)) method.combine = row->combine;
  for (const std::string& member : members) method.members.push_back(find_model(member));
  const bool known = std::find(method.members.begin(), method.members.end(), nullptr) == method.members.end();
  const std::size_t fewest = method.combine == Combine::single ? 1 : 2;
  if (!known || method.members.size() < fewest || (fewest == 1 && method.members.size() > 1)) {
    throw user_error("predict.file", fmt::format("the file's method '{}' is not known here", plain_text(name, 40)));
  }
  return method;
}

std::string method_docs() {
  std::string text;
  for (const ModelKind* kind : model_kinds()) text += fmt::format("{}: {}; ", kind->name, kind->doc);
  for (const Ensemble& row : kEnsembles) text += fmt::format("{}: {}; ", row.name, row.doc);
  return text + "all: all of them";
}

std::vector<float> combined(const Method& method, std::span<const std::vector<float>> members) {
  if (method.combine == Combine::single) return members[0];
  std::vector<float> out(members[0].size());
  if (method.combine == Combine::parallel) {
    for (const std::vector<float>& scores : members) {
      const std::vector<float> rank = ranks(scores);
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = std::min(out[i], -rank[i]);
    }
    return out;
  }
  const std::vector<float> first = ranks(members[0]), second = ranks(members[1]);
  const auto size = static_cast<float>(out.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const bool cleared = first[i] >= (1 - static_cast<float>(kCleared)) * size;
    out[i] = cleared ? -size - first[i] : -second[i];
  }
  return out;
}

}  // namespace ms::predict
