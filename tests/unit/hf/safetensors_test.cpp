// safetensors: the exact bytes, round trips over one file and several, and everything hostile that a header can say.
#include "hf/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "support.h"

namespace ms::hf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string le64(std::uint64_t value) {
  std::string text;
  for (int i = 0; i < 8; ++i) text.push_back(static_cast<char>(value >> (8 * i) & 0xFF));
  return text;
}
std::string file_of(const std::string& header, const std::string& data) { return le64(header.size()) + header + data; }

void write_tensors(const std::string& path, const std::vector<TensorInfo>& tensors, char fill = 'a') {
  TensorFileWriter writer(path, tensors);
  for (const TensorInfo& tensor : tensors) {
    const std::string data(static_cast<std::size_t>(size_bytes(tensor)), fill++);
    writer.write(std::as_bytes(std::span(data)));
  }
  writer.close();
}

std::string text_of(const TensorView& view) {
  const std::vector<std::byte> bytes = view.read();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(TensorFile, ThatIsCutWhileItIsInUseIsAnErrorAndNoSignal) {
  const TempDir dir;
  write_tensors(dir / "t", {TensorInfo{"a", Dtype::f32, {65536}}});
  const TensorFile file(dir / "t");
  std::filesystem::resize_file(dir / "t", 100);
  try {
    file.tensors().at("a").read();
    FAIL() << "bytes of a file that has none";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), "file.cut");
    EXPECT_THAT(error.message(), HasSubstr("was cut while it was in use"));
  }
}

TEST(TensorFileWriter, WritesTheExactBytes) {
  const TempDir dir;
  write_tensors(dir / "t", {{"a", Dtype::f32, {1}}, {"b", Dtype::bf16, {3, 1}}});
  const std::string header = R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                             R"("b":{"dtype":"BF16","shape":[3,1],"data_offsets":[4,10]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(slurp(dir / "t"), file_of(padded, "aaaabbbbbb"));
}

TEST(TensorFileWriter, RefusesANameThatIsThere) {
  const TempDir dir;
  spill(dir / "t", "old");
  const Error error = thrown_by([&] { TensorFileWriter(dir / "t", {}); });
  EXPECT_EQ(error.blame(), Blame::storage);
  EXPECT_EQ(slurp(dir / "t"), "old");
}

TEST(TensorFile, ReadsWhatWasWritten) {
  const TempDir dir;
  write_tensors(dir / "t", {{"x", Dtype::f16, {2, 3}}, {"y", Dtype::f32, {}}, {"empty", Dtype::f32, {0, 5}}});
  const TensorFile file(dir / "t");
  ASSERT_EQ(file.tensors().size(), 3U);
  const TensorView& x = file.tensors().at("x");
  EXPECT_EQ(x.dtype, Dtype::f16);
  EXPECT_THAT(x.shape, ElementsAre(2, 3));
  EXPECT_EQ(text_of(x), std::string(12, 'a'));
  EXPECT_EQ(text_of(file.tensors().at("y")), "bbbb");
  EXPECT_EQ(file.tensors().at("empty").size_bytes, 0U);
}

TEST(TensorFile, AcceptsWhatTheFormatAllows) {
  const TempDir dir;
  struct Case {
    const char* what;
    std::string bytes;
    std::size_t tensors;
  };
  const Case cases[] = {
      {"no tensors", file_of("{}", ""), 0},
      {"blanks behind the header", file_of("{}      ", ""), 0},
      {"an order of its own",
       file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},)"
               R"("b":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})",
               "xy"),
       2},
      {"metadata of strings", file_of(R"({"__metadata__":{"format":"np","k":"v"}})", ""), 0},
  };
  for (const Case& c : cases) {
    spill(dir / "t", c.bytes);
    EXPECT_EQ(TensorFile(dir / "t").tensors().size(), c.tensors) << c.what;
  }
}

TEST(TensorFile, RefusesHostileHeaders) {
  const auto one = [](const std::string& entry, const std::string& data = "") {
    return file_of(R"({"a":)" + entry + "}", data);
  };
  const auto two = [](const std::string& a, const std::string& b, const std::string& data) {
    return file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)" + a +
                       R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + b + "}}",
                   data);
  };
  const std::string deep(200'000, '['), closed = deep + std::string(deep.size(), ']');
  struct Case {
    std::string bytes;
    const char* why;
  };
  const Case cases[] = {
      {"", "it has 0 bytes"},
      {"1234567", "it has 7 bytes"},
      {le64(100'000'001) + "{}", "its header would have 100000001 bytes"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a", "a pointer of Git LFS"},
      {le64(UINT64_MAX) + "{}", "its header would have 18446744073709551615 bytes"},
      {le64(3) + "{}", "a header of 3 bytes in a file of 10"},
      {le64(0), "does not begin with '{'"},
      {file_of(" {}", ""), "does not begin with '{'"},
      {file_of("[]", ""), "does not begin with '{'"},
      {file_of("{", ""), "its header is not JSON: "},
      {file_of("{}x", ""), "its header is not JSON: "},
      {file_of("{\"\xff\":1}", ""), "its header is not JSON: "},
      {file_of(R"({"a":1e999})", ""), "its header is not JSON: "},
      {file_of(R"({"__metadata__":{"n":1}})", ""), "__metadata__ is not an object of strings"},
      {file_of(R"({"__metadata__":[]})", ""), "__metadata__ is not an object of strings"},
      {one(R"({"dtype":"U8","shape":[)" + closed + R"(],"data_offsets":[0,0]})"), "its header nests more than 32 deep"},
      {one(R"({"dtype":"U8","shape":[)" + deep), "its header nests more than 32 deep"},
      {one(R"({"dtype":[[7]],"shape":[0],"data_offsets":[0,0]})"), "unknown dtype a list"},
      {one(R"({"dtype":"U8","shape":[{"a":1}],"data_offsets":[0,0]})"), "an object in the shape"},
      {one("1"), "not an object of dtype, shape and data_offsets"},
      {one(R"({"dtype":"U8","shape":[0]})"), "not an object of dtype, shape and data_offsets"},
      {one(R"({"dtype":"U8","shape":[0],"data_offsets":[0,0],"more":1})"), "not an object of dtype"},
      {one(R"({"dtype":"F12","shape":[0],"data_offsets":[0,0]})"), "unknown dtype \"F12\""},
      {one(R"({"dtype":8,"shape":[0],"data_offsets":[0,0]})"), "unknown dtype 8"},
      {one(R"({"dtype":"U8","shape":0,"data_offsets":[0,0]})"), "the shape is not a list"},
      {one(R"({"dtype":"U8","shape":[-1],"data_offsets":[0,0]})"), "-1 in the shape"},
      {one(R"({"dtype":"U8","shape":[1.0],"data_offsets":[0,1]})", "x"), "1.0 in the shape"},
      {one(R"({"dtype":"U8","shape":["1"],"data_offsets":[0,1]})", "x"), "in the shape"},
      {one(R"({"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,0]})"), "in the shape"},
      {one(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]})"), "the shape overflows"},
      {one(R"({"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]})"), "the shape overflows"},
      {one(R"({"dtype":"U8","shape":[1],"data_offsets":[0]})", "x"), "data_offsets are not two numbers"},
      {one(R"({"dtype":"U8","shape":[1],"data_offsets":[0,-1]})", "x"), "data_offsets are not two numbers"},
      {one(R"({"dtype":"U8","shape":[1],"data_offsets":[1,0]})", "x"), "bytes 1 to 0 of 1"},
      {one(R"({"dtype":"U8","shape":[2],"data_offsets":[0,2]})", "x"), "bytes 0 to 2 of 1: the file was cut"},
      {one(R"({"dtype":"U8","shape":[1],"data_offsets":[18446744073709551615,0]})", "x"), "of 1"},
      {one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,1]})", "x"), "1 bytes, but its shape takes 4"},
      {one(R"({"dtype":"F4","shape":[3],"data_offsets":[0,2]})", "xy"), "its shape takes 12 bits"},
      {one(R"({"dtype":"F4","shape":[4],"data_offsets":[0,4]})", "wxyz"), "4 bytes, but its shape takes 2"},
      {one(R"({"dtype":"U8","shape":[1],"data_offsets":[1,2]})", "xy"), "a gap before tensor 'a'"},
      {one(R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})", "xyz"), "2 bytes behind the last tensor"},
      {two("[0,2]", "[3,5]", "12345"), "a gap before tensor 'b'"},
      {two("[0,2]", "[1,3]", "123"), "an overlap before tensor 'b'"},
      {two("[0,2]", "[0,2]", "12"), "an overlap before tensor 'b'"},
      {file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
               R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
               "x"),
       "'a' is there twice"},
  };
  const TempDir dir;
  for (const Case& c : cases) {
    spill(dir / "t", c.bytes);
    const Error error = thrown_by([&] { TensorFile(dir / "t"); });
    EXPECT_EQ(error.kind(), "hf.safetensors") << c.why;
    EXPECT_EQ(error.blame(), Blame::user) << c.why;
    EXPECT_THAT(error.message(), HasSubstr(c.why));
    EXPECT_THAT(error.message(), HasSubstr(dir / "t"));
  }
}

// safetensors 0.6 and 0.7 added them.
TEST(TensorFile, NarrowTypesTakeTheirBits) {
  struct Case {
    const char* dtype;
    int elements, size_bytes;
  };
  const TempDir dir;
  for (const Case& c : {Case{"F8_E8M0", 6, 6}, Case{"F8_E4M3FNUZ", 6, 6}, Case{"F8_E5M2FNUZ", 6, 6},
                        Case{"F6_E2M3", 4, 3}, Case{"F6_E3M2", 8, 6}, Case{"F4", 6, 3}}) {
    const std::string data(static_cast<std::size_t>(c.size_bytes), 'x');
    spill(dir / "t", file_of(fmt::format(R"({{"a":{{"dtype":"{}","shape":[2,{}],"data_offsets":[0,{}]}}}})", c.dtype,
                                         c.elements / 2, c.size_bytes),
                             data));
    const auto tensors = TensorFile(dir / "t").tensors();
    ASSERT_EQ(tensors.size(), 1U);
    const TensorView& view = tensors.at("a");
    EXPECT_EQ(view.dtype_name, c.dtype);
    EXPECT_THAT(view.shape, ElementsAre(2, c.elements / 2));
    EXPECT_EQ(text_of(view), data);
  }
}

TEST(TensorFile, BracketsInNamesDoNotNest) {
  const TempDir dir;
  const std::string name = "\\\"" + std::string(100, '[');
  spill(dir / "t", file_of(R"({")" + name + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", ""));
  EXPECT_EQ(TensorFile(dir / "t").tensors().size(), 1U);
}

TEST(TensorFile, EveryTruncationIsRefused) {
  const TempDir dir;
  write_tensors(dir / "whole", {{"a", Dtype::f32, {2}}, {"b", Dtype::bf16, {3}}});
  const std::string whole = slurp(dir / "whole");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    spill(dir / "t", whole.substr(0, size));
    EXPECT_EQ(thrown_by([&] { TensorFile(dir / "t"); }).kind(), "hf.safetensors") << size;
  }
}

TEST(PlanShards, CutsInOrderAndKeepsWhatIsTooLargeAlone) {
  const std::vector<TensorInfo> tensors = {{"a", Dtype::f32, {10}},  // 40 bytes
                                           {"b", Dtype::bf16, {5}},  // 10
                                           {"c", Dtype::f32, {1}},   // 4
                                           {"d", Dtype::f32, {100}},
                                           {"e", Dtype::f32, {1}}};
  const ShardPlan plan = plan_shards(tensors, 54);
  EXPECT_EQ(plan.total_bytes, 458);
  std::vector<std::string> lines;
  for (const ShardPlan::File& file : plan.files) {
    lines.push_back(file.name + ":");
    for (const TensorInfo& tensor : file.tensors) lines.back() += " " + tensor.name;
  }
  EXPECT_THAT(lines, ElementsAre("model-00001-of-00003.safetensors: a c b", "model-00002-of-00003.safetensors: d",
                                 "model-00003-of-00003.safetensors: e"));
  const auto index = nlohmann::json::parse(plan.index_json);
  EXPECT_EQ(index["metadata"]["total_size"], 458);
  EXPECT_EQ(index["weight_map"].size(), 5U);
  EXPECT_EQ(index["weight_map"]["e"], "model-00003-of-00003.safetensors");

  const ShardPlan single = plan_shards(tensors, 458);
  ASSERT_EQ(single.files.size(), 1U);
  EXPECT_EQ(single.files[0].name, kModelFile);
  EXPECT_EQ(single.index_json, "");
}

class Sharded : public testing::Test {
 protected:
  void SetUp() override {
    write_tensors(dir / "one.safetensors", {{"a", Dtype::f32, {1}}, {"b", Dtype::f32, {1}}});
    write_tensors(dir / "two.safetensors", {{"c", Dtype::f32, {1}}}, 'c');
  }
  void index(const std::string& weight_map) {
    spill(dir / std::string(kIndexFile), R"({"weight_map":)" + weight_map + "}");
  }
  const TempDir dir;
};

TEST_F(Sharded, GathersTheFilesOfTheIndex) {
  index(R"({"a":"one.safetensors","b":"one.safetensors","c":"two.safetensors"})");
  const TensorSet set(dir.path());
  ASSERT_EQ(set.tensors().size(), 3U);
  EXPECT_EQ(text_of(set.tensors().at("b")), "bbbb");
  EXPECT_EQ(text_of(set.tensors().at("c")), "cccc");
}

TEST_F(Sharded, OneFileGoesFirst) {
  index("1");
  write_tensors(dir / std::string(kModelFile), {{"z", Dtype::f32, {1}}});
  EXPECT_EQ(TensorSet(dir.path()).tensors().size(), 1U);
}

TEST_F(Sharded, RefusesWhatDoesNotAgree) {
  struct Case {
    const char* weight_map;
    std::vector<const char*> why;
  };
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']'), hidden = R"({"a":)" + deep + "}";
  const Case cases[] = {
      {"[]", {"weight_map is not there, or not an object"}},
      {hidden.c_str(), {"it nests more than 32 deep"}},
      {R"({"a":[["one.safetensors"]]})", {"tensor 'a' is said to be in a list"}},
      {R"({"a":"../one.safetensors"})", {"tensor 'a' is said to be in \"../one.safetensors\""}},
      {R"({"a":"/etc/passwd"})", {"tensor 'a' is said to be in"}},
      {R"({"a":".safetensors"})", {"tensor 'a' is said to be in"}},
      {R"({"a":"one.bin"})", {"tensor 'a' is said to be in"}},
      {R"({"a":1,"b":null})", {"tensor 'a' is said to be in 1", "tensor 'b' is said to be in null"}},
      {R"({"a":"one.safetensors","c":"one.safetensors"})",
       {"'b' in one.safetensors is not in the index", "'c' is not in one.safetensors"}},
      {R"({"a":"one.safetensors","b":"two.safetensors","c":"two.safetensors"})",
       {"'b' in one.safetensors is not in the index", "'b' is not in two.safetensors"}},
  };
  for (const Case& c : cases) {
    index(c.weight_map);
    const Error error = thrown_by([&] { TensorSet set(dir.path()); });
    EXPECT_EQ(error.kind(), "hf.index");
    for (const char* why : c.why) EXPECT_THAT(error.message(), HasSubstr(why));
  }
  index(R"({"a":"three.safetensors"})");
  const Error error = thrown_by([&] { TensorSet set(dir.path()); });
  EXPECT_EQ(error.blame(), Blame::user);
  EXPECT_THAT(error.message(), HasSubstr("three.safetensors"));
}

TEST(TensorSet, SaysWhatADirectoryLacks) {
  const TempDir dir;
  spill(dir / "pytorch_model.bin", "");
  const Error error = thrown_by([&] { TensorSet set(dir.path()); });
  EXPECT_EQ(error.kind(), "hf.model");
  EXPECT_THAT(error.message(), HasSubstr("has neither model.safetensors nor model.safetensors.index.json"));
}

}  // namespace
}  // namespace ms::hf
