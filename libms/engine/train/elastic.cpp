#include "train/elastic.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace ms::train {
namespace {

std::size_t problems_with(const Settings& settings, std::int64_t dp) {
  Settings sized = settings;
  sized.mesh.dp = dp;
  return problems_between(sized).size();
}

// The divisors of the microbatches of a step, within the bounds, in order.
std::vector<std::int64_t> candidates(const Settings& settings) {
  const mesh::MeshConfig& mesh = settings.mesh;
  const std::int64_t microbatches = settings.train.global_batch / settings.train.microbatch;
  const std::int64_t most = mesh.dp_max > 0 ? std::min(mesh.dp_max, microbatches) : microbatches;
  std::vector<std::int64_t> sizes;
  for (std::int64_t low = 1; low * low <= microbatches; ++low) {
    if (microbatches % low != 0) continue;
    for (const std::int64_t dp : {low, microbatches / low}) {
      if (dp >= mesh.dp_min && dp <= most) sizes.push_back(dp);
    }
  }
  std::ranges::sort(sizes);
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

}  // namespace

std::vector<std::int64_t> allowed_dp(const Settings& settings) {
  std::vector<std::int64_t> sizes = candidates(settings);
  std::erase_if(sizes, [&](std::int64_t dp) { return problems_with(settings, dp) > 0; });
  return sizes;
}

std::vector<std::int64_t> choose_dp(Settings& settings) {
  std::vector<std::int64_t> sizes = allowed_dp(settings);
  if (!sizes.empty()) {
    settings.mesh.dp = sizes.back();
    return sizes;
  }
  const std::vector<std::int64_t> refused = candidates(settings);
  const auto fewest =
      std::ranges::min_element(refused, {}, [&](std::int64_t dp) { return problems_with(settings, dp); });
  settings.mesh.dp = fewest == refused.end() ? settings.mesh.dp_min : *fewest;
  return sizes;
}

void take_ranks(mesh::MeshConfig& mesh, const std::vector<std::int64_t>& sizes, std::int64_t world) {
  const std::int64_t replica = mesh.replica_ranks();
  const auto above = std::ranges::upper_bound(sizes, world / replica);
  if (above != sizes.begin() && *(above - 1) * replica == world) {
    mesh.dp = *(above - 1);
    return;
  }
  std::string hint = fmt::format("start at least {} ranks", sizes.front() * replica);
  if (above != sizes.begin()) {
    const std::int64_t ranks = *(above - 1) * replica;
    hint = fmt::format("start {} ranks, which leaves {} over; ms-driver chooses nodes by itself", ranks, world - ranks);
  }
  throw user_error(
      "mesh.size",
      fmt::format("mesh.dp = \"auto\" may be {}, with {} of mesh.pp x mesh.tp{} = {} each, and there are {}",
                  sizes_text(sizes), plural(static_cast<std::size_t>(replica), "rank"), mesh.cp > 1 ? " x mesh.cp" : "",
                  replica, plural(static_cast<std::size_t>(world), "rank")),
      hint);
}

std::string sizes_text(const std::vector<std::int64_t>& sizes) {
  if (sizes.size() == 1) return std::to_string(sizes.front());
  return fmt::format("{} or {}", fmt::join(sizes.begin(), sizes.end() - 1, ", "), sizes.back());
}

}  // namespace ms::train
