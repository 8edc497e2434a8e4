// Writes the initial state of a run for peer_pytorch.py: parameters with Hugging Face's names and layout, and the
// batches of all its steps.   usage: peer_start make CONFIG DIRECTORY [--set KEY=VALUE]... Writes
// DIRECTORY/model.safetensors, f32, and DIRECTORY/tokens, raw int32 [steps, global_batch, seq + 1]. Runs on the CPU:
// initial values are a function of the seed, equal on every device except for the last place.
#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/cli.h"
#include "base/file.h"
#include "comm/thread_world.h"
#include "data/loader.h"
#include "hf/names.h"
#include "hf/safetensors.h"
#include "tensor/cpu_device.h"
#include "train/engine/engine.h"

namespace ms {
namespace {

using Values = std::map<std::string, std::vector<float>>;

Values initial_values(const train::Plan& plan) {
  tensor::MatmulCache matmuls;
  tensor::CpuPool pool(tensor::CpuPool::size_for(1, 1, 1));
  tensor::CpuDevice device(pool, matmuls);
  comm::ThreadHub hub(1, std::chrono::seconds(60));
  const auto world = hub.world(0);
  Values values;
  {
    train::Engine engine(plan, *world, device);
    engine.initialize(static_cast<std::uint64_t>(plan.settings.train.seed));
    engine.synchronize();
    for (const train::ChunkTensors& chunk : engine.chunks()) {
      for (std::size_t i = 0; i < chunk.specs.size(); ++i) {
        for (const nn::ParamSpec& param : chunk.specs[i].params) {
          const auto* begin = chunk.spans[i].values.as<float>() + param.offset;
          values[param.shard.name].assign(begin, begin + param.shard.logical_rows() * param.shard.cols);
        }
      }
    }
  }
  world->close();
  return values;
}

void write_weights(const nn::ModelConfig& model, const Values& values, const std::string& path) {
  const std::vector<hf::Mapped> tensors = hf::tensors_of(model, hf::export_layout(model));
  std::vector<hf::TensorInfo> infos;
  for (const hf::Mapped& tensor : tensors) infos.push_back({tensor.name, hf::Dtype::f32, tensor.shape});
  hf::TensorFileWriter writer(path, infos);
  for (const hf::Mapped& tensor : tensors) {
    std::vector<float> rows;
    for (const hf::Part& part : tensor.parts) {
      const std::vector<float>& one = values.at(part.name);
      rows.insert(rows.end(), one.begin(), one.end());
    }
    if (tensor.transposed) {
      const std::int64_t cols = tensor.shape[0], count = tensor.shape[1];
      std::vector<float> turned(rows.size());
      hf::transpose(std::as_bytes(std::span(rows)).data(), cols, count, cols, sizeof(float),
                    std::as_writable_bytes(std::span(turned)).data());
      rows = std::move(turned);
    }
    writer.write(std::as_bytes(std::span(rows)));
  }
  writer.close();
}

void write_tokens(const train::Settings& settings, const std::string& path) {
  const std::int64_t seq = settings.model.seq, rows = settings.train.global_batch;
  const data::Loader loader(settings.data, {.seq = seq, .global_batch = rows}, settings.model.vocab,
                            static_cast<std::uint64_t>(settings.train.seed));
  const std::int64_t step_tokens = rows * (seq + 1);
  std::vector<std::int32_t> all(static_cast<std::size_t>(settings.train.steps * step_tokens));
  for (std::int64_t step = 0; step < settings.train.steps; ++step) {
    loader.fill(step, 0, rows, all.data() + step * step_tokens);
  }
  const auto bytes = std::as_bytes(std::span(all));
  write_file_atomic(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

int make(const Args& args) {
  std::vector<std::string> assignments = args.list("set");
  assignments.insert(assignments.end(), {"train.dtype=fp32", "run.device=cpu", "train.fp8=false"});
  const train::Settings settings = train::load(args.get("CONFIG"), assignments).settings;
  const train::Plan plan = train::make_plan(settings, 1);
  const std::string directory = args.get("DIRECTORY");
  std::filesystem::create_directories(directory);
  write_weights(settings.model, initial_values(plan), directory + "/" + std::string(hf::kModelFile));
  write_tokens(settings, directory + "/tokens");
  return 0;
}

}  // namespace
}  // namespace ms

int main(int argc, char** argv) {
  const ms::Tool tool{
      .name = "peer_start",
      .summary = "what a run begins with, for peer_pytorch.py",
      .commands = {{.name = "make",
                    .summary = "write initial weights and the batches of all steps",
                    .positionals = {{.name = "CONFIG", .doc = "A configuration of ms-train."},
                                    {.name = "DIRECTORY", .doc = "Where model.safetensors and tokens are written."}},
                    .options = {{.name = "set", .value = "KEY=VALUE", .doc = "On top of the file.", .many = true}},
                    .run = ms::make}}};
  return ms::run_tool(tool, argc, argv);
}
