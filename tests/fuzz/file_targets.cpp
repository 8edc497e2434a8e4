// Parsers of files of data: manifests of checkpoints, safetensors and the JSON beside them, indices of token files,
// samples of nodes, tar archives of images with text.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "base/hash.h"
#include "ckpt/manifest.h"
#include "ckpt/manifest_tail.h"
#include "data/tar_samples.h"
#include "data/token_file.h"
#include "data/token_writer.h"
#include "foreign/checkpoint.h"
#include "health/telemetry/day_file.h"
#include "hf/model_json.h"
#include "hf/safetensors.h"
#include "target.h"

namespace ms::fuzz {
namespace {

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The manifest without its last line, which holds the hash of all before it.
void manifest(std::string_view body) {
  const auto closed = [](std::string_view text) { return std::string(text) + ckpt::manifest_tail(xxh64(text)); };
  const ckpt::Manifest read = ckpt::parse_manifest(closed(body), "fuzz");
  expect(ckpt::to_json(ckpt::parse_manifest(ckpt::to_json(read), "again")) == ckpt::to_json(read),
         "a manifest that is written is the same");
}

ckpt::Manifest some_manifest() {
  ckpt::Manifest made;
  made.step = 1200, made.run = "00c0ffee00c0ffee", made.created = "2026-01-31T12:00:00Z", made.version = "0.1.0";
  made.config = "[mesh]\ndp = 2\n", made.dtype = "bf16";
  ckpt::FileEntry entry{.name = "rank-00000.h5", .size_bytes = 4096 + 256, .hashes = {17}, .pieces = {}};
  entry.pieces = {{{ckpt::State::weight, tensor::DType::bf16, ckpt::whole("w", 4, 8)}, 4096},
                  {{ckpt::State::master, tensor::DType::f32, ckpt::whole("w", 4, 8)}, 4160}};
  made.files = {entry};
  return made;
}

std::vector<std::string> manifest_seeds() {
  const std::string text = ckpt::to_json(some_manifest());
  return {text.substr(0, text.size() - ckpt::manifest_tail(0).size())};
}

// Its eight bytes of length are mended where they are beyond the file, or nothing behind them is reached.
void safetensors(std::string_view bytes) {
  std::string file(bytes);
  std::uint64_t length = 0;
  if (file.size() >= sizeof length) {
    std::memcpy(&length, file.data(), sizeof length);
    if (length > file.size() - sizeof length && length % 2 == 0) {
      length = file.size() - sizeof length;
      std::memcpy(file.data(), &length, sizeof length);
    }
  }
  const hf::TensorFile read(put("model.safetensors", file));
  unsigned sum = 0;
  for (const auto& [name, tensor] : read.tensors()) {
    if (tensor.size_bytes == 0) continue;
    std::byte last;
    tensor.read(tensor.size_bytes - 1, std::span(&last, 1));  // asserts that it lies in the file
    sum += static_cast<unsigned>(last);
  }
  expect(sum < 1U << 31U, "tensors lie in the file");
}

std::vector<std::string> safetensors_seeds() {
  const std::string path = put("seed.safetensors", "");
  std::remove(path.c_str());  // the writer makes it
  hf::TensorFileWriter writer(path, {{"a", hf::Dtype::f32, {2, 3}}, {"b.weight", hf::Dtype::bf16, {5}}});
  writer.write(std::vector<std::byte>(24 + 10));
  writer.close();
  return {contents(path)};
}

// Files that an index names come from the index, so there are none.
void hf_index(std::string_view text) {
  put("model.safetensors.index.json", text);
  std::string dir = put("other", "");
  dir.resize(dir.rfind('/'));
  std::remove((dir + "/model.safetensors").c_str());
  const hf::TensorSet read(dir);
}

std::vector<std::string> hf_index_seeds() {
  const std::vector<hf::TensorInfo> tensors = {{"a", hf::Dtype::f32, {64}}, {"b", hf::Dtype::f32, {64}}};
  return {hf::plan_shards(tensors, 300).index_json};
}

void hf_config(std::string_view text) {
  const nn::ModelConfig model = hf::parse_config(text, "fuzz");
  hf::to_toml(model);
}

std::vector<std::string> hf_config_seeds() {
  std::vector<std::string> seeds;
  for (const char* family : {"gpt", "llama"}) {
    nn::ModelConfig model;
    model.family = family, model.layers = 2, model.hidden = 16, model.heads = 4, model.vocab = 11, model.seq = 7;
    if (model.family == "llama") model.kv_heads = 2, model.ffn_hidden = 20;
    seeds.push_back(hf::config_json(model, tensor::DType::f32));
  }
  return seeds;
}

// The index, with as many bytes of tokens as it asks for, if those are few.
void token_index(std::string_view index) {
  constexpr std::size_t kBytes = 256;
  const std::string prefix = put("tokens.idx", index).substr(0, put("tokens.bin", "").size() - 4);
  put("tokens.bin", std::string(kBytes, '\1'));
  const data::TokenFile read(prefix);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(read.num_tokens()));
  read.read(0, tokens);
  for (std::int64_t i = 0; i < read.num_documents(); ++i) expect(read.document(i).size() >= 0, "documents have tokens");
}

std::vector<std::string> token_index_seeds() {
  std::string prefix = put("seed.idx", "");
  prefix.resize(prefix.size() - 4);
  data::TokenWriter writer(prefix, data::TokenType::u16);
  for (int document = 0; document < 2; ++document) {
    writer.append(std::vector<std::int32_t>(64, 7));
    writer.end_document();
  }
  writer.commit();
  return {contents(prefix + ".idx")};
}

// A file of samples: its first header and the records behind it, with lengths and hashes mended. The header's text ends
// at the first NUL.
void samples(std::string_view bytes) {
  health::parse_day_file(bytes);
  const std::string text(bytes.substr(0, bytes.find('\0')));
  const auto add = [](std::string& file, auto value) {
    file.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  std::uint32_t columns = 0;
  for (std::size_t at = text.starts_with("column\t") ? 0 : text.find("\ncolumn\t"); at != std::string::npos;
       at = text.find("\ncolumn\t", at + 1)) {
    ++columns;
  }
  std::string file = "MSTELEM1";
  add(file, static_cast<std::uint32_t>(text.size()));
  add(file, columns);
  add(file, xxh64(text));
  file += text;
  file.resize((file.size() + 7) / 8 * 8, ' ');
  std::string_view rest = bytes.substr(std::min(bytes.size(), text.size() + 1));
  const std::size_t width = 8 + columns * sizeof(float);
  for (; rest.size() >= width; rest.remove_prefix(width)) {
    std::string record;
    add(record, std::uint32_t{0x5a317e1e});
    record += rest.substr(0, width);
    add(record, static_cast<std::uint32_t>(xxh64(record, xxh64(text))));
    file += record;
  }
  const health::DayFile read = health::parse_day_file(file + std::string(rest));
  expect(read.whole_bytes <= file.size() + rest.size(), "what is whole lies in the file");
  for (const health::Segment& segment : read.segments) {
    expect(segment.values.size() == segment.times.size() * segment.layout.columns.size(), "rows are whole");
    const health::DayFile again = health::parse_day_file(health::encode_header(segment.layout));
    expect(again.segments.size() == 1 && again.segments[0].layout == segment.layout, "a header is the same again");
  }
}

std::vector<std::string> samples_seeds() {
  const health::Sample sample{.wall_s = 1.8e9,
                              .values = {{"", "load", 1}, {"gpu0", "temperature_c", 40}},
                              .facts = {{"gpu0", {{"uuid", "GPU-a"}}}}};
  const health::Layout layout = health::layout_for(sample, "n1", nullptr);
  const std::string file = health::encode_header(layout) + health::encode_record(layout, sample);
  constexpr std::size_t kBeforeText = 24;
  const std::string text = file.substr(kBeforeText, file.rfind('\n') + 1 - kBeforeText);
  return {file, text + std::string(1 + 2 * (8 + 8), '\0')};
}

// A file of torch.save: an archive, or as before 1.6. What is read of it lies in it.
void torch_file(std::string_view bytes) {
  const auto size = static_cast<std::int64_t>(bytes.size());
  const unpack::ReadAt read = [&](std::int64_t at, std::span<std::byte> to) {
    expect(at >= 0 && at <= size && std::ssize(to) <= size - at, "what is read lies in the file");
    if (!to.empty()) std::memcpy(to.data(), bytes.data() + at, to.size());
  };
  const foreign::TorchFile file = foreign::read_torch_file(read, size);
  for (const unpack::ZipMember& member : file.members)
    expect(member.begin >= 0 && member.size_bytes >= 0 && member.begin <= size - member.size_bytes,
           "a member lies in the file");
}

using namespace std::string_literals;

std::vector<std::string> torch_file_seeds() {
  const std::string number = "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19."s;
  const std::string storage =
      "ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0"
      "0X\x03\0\0\0cpuK\x02NtQK\0K\x02\x85K\x01\x85\x89)tR"s;
  return {number + "\x80\x02M\xe9\x03.\x80\x02}.\x80\x02}X\x01\0\0\0a"s + storage +
          "s.\x80\x02]X\x01\0\0\0"
          "0a."s +
          "\x02\0\0\0\0\0\0\0"s + std::string(8, 'x')};
}

// The .metadata of a directory that has no other file.
void dcp_metadata(std::string_view bytes) {
  const std::string path = put(".metadata", bytes);
  foreign::Checkpoint checkpoint;
  checkpoint.path = path.substr(0, path.rfind('/'));
  foreign::open_dcp(checkpoint);
  foreign::check_boxes(checkpoint);
  for (const foreign::Tensor& tensor : checkpoint.tensors) {
    for (const foreign::Box& box : tensor.boxes) {
      expect(box.item < checkpoint.items.size(), "a box has an item");
      expect(box.offsets.size() == tensor.shape.size() && box.sizes.size() == tensor.shape.size(),
             "a box has all dims");
    }
  }
  for (const foreign::Item& item : checkpoint.items)
    expect(item.file < checkpoint.files.size() && item.begin >= 0 && item.size_bytes >= 0, "an item has a file");
  for (const std::string& file : checkpoint.files) expect(!file.starts_with('/'), "a file lies in the directory");
}

std::vector<std::string> dcp_metadata_seeds() {
  const std::string module = "ctorch.distributed.checkpoint.metadata\n", one = "ctorch\nSize\nK\x02\x85\x85R"s;
  const auto text = [](const std::string& of) {
    return "X" + std::string(1, static_cast<char>(of.size())) + "\0\0\0"s + of;
  };
  const std::string none = "ctorch\nSize\nK\0\x85\x85R"s;
  const std::string chunk =
      module + "ChunkStorageMetadata\n)\x81}(" + text("offsets") + none + text("sizes") + one + "ub";
  const std::string properties = module + "TensorProperties\n)\x81(ctorch\nfloat32\nN\x89N\x89tb";
  const std::string tensor = module + "TensorStorageMetadata\n)\x81}(" + text("properties") + properties +
                             text("size") + one + text("chunks") + "]" + chunk + "aub";
  const std::string index = module + "MetadataIndex\n)\x81}(" + text("fqn") + text("w") + text("offset") + none + "ub";
  const std::string info = "ctorch.distributed.checkpoint.filesystem\n_StorageInfo\n)\x81}("s + text("relative_path") +
                           text("__0_0.distcp") + text("offset") + "K\0"s + text("length") + "K\x09" + "ub";
  return {"\x80\x02" + module + "Metadata\n)\x81}(" + text("state_dict_metadata") + "}(" + text("w") + tensor +
          text("b") + module + "BytesStorageMetadata\n)\x81u" + text("storage_data") + "}" + index + info + "sub."};
}

constexpr std::size_t kTarBlock = 512, kTarSizeAt = 124, kTarSumAt = 148;

// Makes the sums of headers right, or nothing behind them is reached.
std::string with_sums(std::string archive) {
  for (std::size_t at = 0; at + kTarBlock <= archive.size() && archive[at] != '\0';) {
    std::memset(&archive[at + kTarSumAt], ' ', 8);
    unsigned sum = 0;
    for (std::size_t i = 0; i < kTarBlock; ++i) sum += static_cast<unsigned char>(archive[at + i]);
    std::snprintf(&archive[at + kTarSumAt], 8, "%06o", sum);
    const std::size_t size = std::strtoull(archive.substr(at + kTarSizeAt, 12).c_str(), nullptr, 8);
    if (size > archive.size()) break;
    at += kTarBlock + (size + kTarBlock - 1) / kTarBlock * kTarBlock;
  }
  return archive;
}

void tar_samples(std::string_view bytes) {
  const std::string archive = with_sums(std::string(bytes));
  const std::size_t piece = bytes.empty() ? 1 : static_cast<unsigned char>(bytes.back()) + 1;
  std::vector<std::string> lines[2];
  for (const bool whole : {true, false}) {
    data::TarSamples samples("a.tar", "text", "images");
    const auto keep = [&](std::string_view line) { lines[whole ? 0 : 1].emplace_back(line); };
    try {
      const std::size_t step = whole ? archive.size() + 1 : piece;
      for (std::size_t at = 0; at < archive.size(); at += step)
        samples.feed(std::string_view(archive).substr(at, step), keep);
      samples.end(keep);
    } catch (const Error& error) { lines[whole ? 0 : 1].push_back(error.message()); }
  }
  expect(lines[0] == lines[1], "an archive in pieces has the same samples");
  for (const std::string& line : lines[0]) expect(line.find('\n') == std::string::npos, "a sample is a line");
}

std::vector<std::string> tar_samples_seeds() {
  std::string archive;
  const auto add = [&](std::string_view name, char type, std::string_view contents) {
    std::string header(kTarBlock, '\0');
    name.copy(header.data(), 100);
    std::snprintf(&header[kTarSizeAt], 12, "%011zo", contents.size());
    header[156] = type;
    std::memcpy(&header[257], "ustar", 5);
    archive += header + std::string(contents);
    archive.resize((archive.size() + kTarBlock - 1) / kTarBlock * kTarBlock);
  };
  add("a/000.jpg", '0', "\xff\xd8\xff");
  add("a/000.txt", '0', "a caption\n");
  add("pax", 'x', "19 path=b/001.json\n");
  add("short", '0', R"({"text": "another", "width": 3})");
  add("long", 'L', "b/001.png");
  add("short", '\0', "\x89PNG");
  return {archive, archive + std::string(2 * kTarBlock, '\0')};
}

const Target kTargets[] = {
    {"torch_file",
     torch_file,
     torch_file_seeds,
     {"ctorch\nSize\n", "PK\3\4", "ctorch\nBFloat16Storage\n", "\x81}(", "tQ", "ub"}},
    {"dcp_metadata",
     dcp_metadata,
     dcp_metadata_seeds,
     {"../", "transform_descriptors", "relative_path", "chunks", "properties",
      "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"}},
    {"manifest",
     manifest,
     manifest_seeds,
     {"\"weight\"", "\"master\"", "\"pieces\":", "\"slices\":", "\"xxh64\":", "9223372036854775807", "1e400",
      "\"files\":"}},
    {"safetensors",
     safetensors,
     safetensors_seeds,
     {"\"data_offsets\":", "\"shape\":", "\"F32\"", "\"BF16\"", "__metadata__", "9223372036854775807", "[0,0]"}},
    {"hf_index",
     hf_index,
     hf_index_seeds,
     {"\"weight_map\":", "../", "\"metadata\":", "model-00001-of-00002.safetensors"}},
    {"hf_config",
     hf_config,
     hf_config_seeds,
     {"\"rope_scaling\":", "\"llama3\"", "\"head_dim\":", "1e400", "-1",
      "\"architectures\":", "\"sliding_window\":", "9223372036854775807"}},
    {"token_index",
     token_index,
     token_index_seeds,
     {std::string_view("MMIDIDX\0\0", 9), "\xff\xff\xff\xff\xff\xff\xff\x7f"}},
    {"tar_samples", tar_samples, tar_samples_seeds, {"ustar", ".jpg", ".json", "27 path=", "\x80", "0000000"}},
    {"samples", samples, samples_seeds, {"MSTELEM1", "column\t", "\nfact\t", "node\t", "\x1e\x7e\x31\x5a"}},
};

}  // namespace

std::span<const Target> file_targets() { return kTargets; }

}  // namespace ms::fuzz
