// torch_dist of Megatron-LM: a directory of torch.distributed.checkpoint, whose metadata.json is written last of all,
// and the state that all ranks share: common.pt, or from core 0.19 on the object common_state.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "foreign/checkpoint.h"
#include "foreign/source.h"

namespace ms::foreign {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBackend = "/metadata.json", kCommon = "common.pt", kIteration = "iter_";
constexpr std::int64_t kMostBackendBytes = 1 << 20;

std::optional<Json> backend_of(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path + std::string(kBackend), error)) return std::nullopt;
  const Source source(path + std::string(kBackend));
  std::optional<Json> json = Json::try_parse(source.text(0, std::min(source.size_bytes(), kMostBackendBytes)), {});
  return json && json->is_object() && json->contains("sharded_backend") ? std::move(json) : std::nullopt;
}

}  // namespace

bool is_megatron(const std::string& path) {
  if (backend_of(path)) return true;
  std::error_code error;
  return is_dcp(path) &&
         (fs::path(path).filename().string().starts_with(kIteration) || fs::exists(fs::path(path) / kCommon, error));
}

void open_megatron(Checkpoint& to) {
  const std::optional<Json> backend = backend_of(to.path);
  if (!backend) {
    to.finished = false;
    to.problems.push_back({"unfinished",
                           "metadata.json, which Megatron-LM writes last, is missing or damaged: the save was cut off, "
                           "or is still being written"});
    return;
  }
  const Json& name = backend->at("sharded_backend");
  if (name != "torch_dist") {
    to.unread.push_back({"backend", fmt::format("its backend {} is not read", plain_text(name.dump(), 40))});
    return;
  }
  open_dcp(to);
  if (!to.finished) return;
  std::error_code error;
  if (fs::exists(fs::path(to.path) / kCommon, error)) {
    add_torch_file(to, std::string(kCommon), "common.");
  } else if (std::ranges::none_of(to.objects,
                                  [](const auto& object) { return object.first.starts_with("common_state/"); })) {
    to.problems.push_back({"missing-file", "common.pt is missing, and there is no object common_state"});
  }
}

}  // namespace ms::foreign
