#include "optim/optimizer.h"

#include <algorithm>

#include "base/error.h"

namespace ms::optim {

// Each is defined in the file of its name.
extern const OptimizerKind kAdamW;
extern const OptimizerKind kLamb;
extern const OptimizerKind kMuon;

namespace {

constexpr const OptimizerKind* kKinds[] = {&kAdamW, &kLamb, &kMuon};

}  // namespace

std::vector<std::string_view> state_names(const OptimizerKind& kind) {
  std::vector<std::string_view> names(kind.states.begin(), kind.states.end());
  names.insert(names.end(), kind.matrix_states.begin(), kind.matrix_states.end());
  return names;
}

bool has_state(const OptimizerKind& kind, std::size_t state, bool is_matrix) {
  return kind.matrix_states.empty() || is_matrix == (state >= kind.states.size());
}

std::span<const OptimizerKind* const> optimizer_kinds() { return kKinds; }

const OptimizerKind& optimizer_kind(std::string_view name) {
  const auto* const found = std::ranges::find(kKinds, name, &OptimizerKind::name);
  MS_ASSERT(found != std::end(kKinds), "no optimizer is called {}", name);
  return **found;
}

std::string optimizer_docs() {
  std::string text;
  for (const OptimizerKind* kind : kKinds) {
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", kind->name, kind->doc);
  }
  return text;
}

}  // namespace ms::optim
