#include "train/checkpoint/restore.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <thread>
#include <vector>

namespace ms::train {

using ckpt::State;
using tensor::DType;
using tensor::Tensor;

namespace {

// Returns the settings that decide what a model computes beyond the shapes of its parameters: key, and value as text.
// init_std has no effect after initialization, and a longer model.seq is no mismatch by itself.
std::map<std::string, std::string> computed_by(const nn::ModelConfig& model) {
  std::map<std::string, std::string> keys{{"model.family", model.family},
                                          {"model.layers", fmt::format("{}", model.layers)},
                                          {"model.hidden", fmt::format("{}", model.hidden)},
                                          {"model.heads", fmt::format("{}", model.heads)},
                                          {"model.kv_heads", fmt::format("{}", model.kv())},
                                          {"model.head_dim", fmt::format("{}", model.head_dim())},
                                          {"model.ffn_hidden", fmt::format("{}", model.ffn())},
                                          {"model.vocab", fmt::format("{}", model.vocab)},
                                          {"model.tied_embeddings", fmt::format("{}", model.tied_embeddings)},
                                          {"model.norm_eps", fmt::format("{}", model.norm_eps)},
                                          {"model.parallel_block", fmt::format("{}", model.parallel_block)},
                                          {"model.exact_gelu", fmt::format("{}", model.exact_gelu)},
                                          {"model.window", fmt::format("{}", model.window)}};
  if (model.is_gpt()) return keys;
  keys["model.experts"] = fmt::format("{}", model.experts);
  if (model.experts > 0) {
    keys["model.experts_per_token"] = fmt::format("{}", model.experts_per_token);
    keys["model.expert_ffn_hidden"] = fmt::format("{}", model.expert_ffn());
    keys["model.shared_experts"] = fmt::format("{}", model.shared_experts);
    keys["model.shared_expert_gate"] = fmt::format("{}", model.shared_expert_gate);
    keys["model.router"] = model.router;
    keys["model.router_normalized"] = fmt::format("{}", model.router_normalized);
    keys["model.router_scale"] = fmt::format("{}", model.router_scale);
    keys["model.router_groups"] = fmt::format("{}", model.router_groups);
    keys["model.router_groups_per_token"] = fmt::format("{}", model.router_groups_per_token);
  }
  keys["model.rotary_dim"] = fmt::format("{}", model.rotary());
  keys["model.rotary_base"] = fmt::format("{}", model.rotary_base);
  keys["model.rotary_scaling"] = model.rotary_scaling;
  if (model.rotary_scaling == "none") return keys;
  keys["model.rotary_factor"] = fmt::format("{}", model.rotary_factor);
  if (model.rotary_scaling == "linear") return keys;
  keys["model.rotary_low_freq"] = fmt::format("{}", model.rotary_low_freq);
  keys["model.rotary_high_freq"] = fmt::format("{}", model.rotary_high());
  keys["model.rotary_original_seq"] = fmt::format("{}", model.rotary_original_seq);
  if (model.rotary_scaling == "yarn")
    keys["model.rotary_attention_factor"] = fmt::format("{}", model.rotary_magnitude());
  return keys;
}

// Returns whether a table of positions is the beginning of a stored one.
bool begins_positions(const ckpt::Slice& wanted, const ckpt::Slice& stored) {
  return wanted.name == "embed.positions.weight" && wanted.global_rows <= stored.global_rows;
}

}  // namespace

void check_model(const nn::ModelConfig& model, const ckpt::Manifest& manifest, const std::string& path,
                 bool first_positions) {
  const ckpt::PieceIndex index(manifest);
  std::vector<std::string> problems;
  if (const auto saved = model_of(manifest)) {
    const auto there = computed_by(*saved), here = computed_by(model);
    for (const auto& [key, value] : here) {
      const auto it = there.find(key);
      if (it != there.end() && it->second != value) {
        problems.push_back(fmt::format("{} is {} there, {} here", key, it->second, value));
      }
    }
  }
  std::map<std::string, bool> known;
  for (const ckpt::Slice& wanted : model_parameters(model)) {
    known[wanted.name] = true;
    const ckpt::Piece* stored = index.find(State::weight, wanted.name);
    const bool has_rows = stored != nullptr && (stored->slice.global_rows == wanted.global_rows ||
                                                (first_positions && begins_positions(wanted, stored->slice)));
    if (stored == nullptr) {
      problems.push_back(fmt::format("{} is not in it", wanted.name));
    } else if (!has_rows || stored->slice.global_cols != wanted.global_cols) {
      problems.push_back(fmt::format("{} is {} x {} there, {} x {} here", wanted.name, stored->slice.global_rows,
                                     stored->slice.global_cols, wanted.global_rows, wanted.global_cols));
    }
  }
  for (const std::string& name : index.parameters()) {
    if (!known.contains(name)) problems.push_back(fmt::format("{} is not in this model", name));
  }
  if (problems.empty()) return;
  constexpr std::size_t kListed = 5;
  const std::size_t more = problems.size() - std::min(problems.size(), kListed);
  problems.resize(problems.size() - more);
  throw user_error("ckpt.mismatch",
                   fmt::format("{} has another model: {}{}", path, fmt::join(problems, "; "),
                               more > 0 ? fmt::format("; and {} more", more) : std::string()),
                   "use the [model] of the checkpoint");
}

namespace {

// The source of a restored state: the stored state of the same parameter that it is read from, and its type there.
struct PieceOrigin {
  State state;
  DType dtype;
};

bool is_of_optimizer(State state) { return state != State::weight && state != State::master; }

PieceOrigin origin_of(const ckpt::Piece& piece, const ckpt::PieceIndex& index) {
  const auto stored = [&](State state) { return index.find(state, piece.slice.name); };
  if (is_of_optimizer(piece.state)) {
    const ckpt::Piece* same = stored(piece.state);
    return {piece.state, same != nullptr ? same->dtype : piece.dtype};
  }
  // Prefers the master, the more exact one, to the weight; but a stored weight of the wanted type is read as it is.
  const ckpt::Piece* weight = stored(State::weight);
  if (piece.state == State::weight && weight != nullptr && weight->dtype == piece.dtype) {
    return {State::weight, weight->dtype};
  }
  if (stored(State::master) != nullptr) return {State::master, DType::f32};
  return {State::weight, weight != nullptr ? weight->dtype : piece.dtype};
}

}  // namespace

int io_threads(const comm::World& world) {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / world.ranks_on_node());
}

ckpt::LoadReport restore(Engine& engine, const ckpt::Manifest& manifest, const std::string& path, int threads) {
  const ckpt::PieceIndex index(manifest);
  std::vector<ckpt::Want> wants;
  // Tensors that are read through a host buffer: their stored type differs, or they are in GPU memory.
  struct Staged {
    Tensor to;
    std::unique_ptr<tensor::Memory> bytes;
    DType dtype;
  };
  std::vector<Staged> staged;
  tensor::Device& device = engine.device();
  const std::vector<ckpt::Held> held = engine.state();
  staged.reserve(held.size());
  for (const ckpt::Held& target : held) {
    ckpt::Piece piece = target.piece;
    if (!manifest.has_optimizer && is_of_optimizer(piece.state)) {
      engine.compute().submit(tensor::Fill{target.tensor});
      continue;
    }
    const ckpt::Piece* stored = index.find(State::weight, piece.slice.name);
    if (stored != nullptr && begins_positions(piece.slice, stored->slice)) {
      piece.slice.global_rows = stored->slice.global_rows;
    }
    const PieceOrigin origin = origin_of(piece, index);
    piece.state = origin.state;
    piece.dtype = origin.dtype;
    std::byte* to = target.tensor.data;
    if (origin.dtype != target.piece.dtype || device.kind() != "cpu") {
      const auto bytes = static_cast<std::size_t>(piece.size_bytes());
      staged.push_back({target.tensor, device.allocate_host(bytes, "what is read of a checkpoint"), origin.dtype});
      to = staged.back().bytes->data();
    }
    wants.push_back({piece, to});
  }
  const ckpt::LoadReport report = ckpt::load(path, index, wants, {.threads = threads, .progress = {}});
  for (const Staged& each : staged) {
    const Tensor from{each.bytes->data(), 1, each.to.cols, each.to.cols, each.dtype};
    engine.compute().submit(tensor::Copy{each.to, from});
  }
  engine.compute().synchronize();
  return report;
}

}  // namespace ms::train
