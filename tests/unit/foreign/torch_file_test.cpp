// What a file of torch.save holds, and what of it is not read.
#include "foreign/torch_file.h"

#include <gmock/gmock.h>

#include "foreign/checkpoint.h"
#include "foreign/diff.h"
#include "foreign/hash.h"
#include "foreign/read.h"
#include "foreign/verify.h"
#include "support/files.h"
#include "support/torch_file.h"

namespace ms::foreign {
namespace {

using test::pickled;
using test::pickled_call;
using test::pickled_dict;
using test::pickled_sizes;
using test::TorchFileWriter;
using testing::ElementsAre;

// A checkpoint of one file.
class TorchFiles : public testing::Test {
 protected:
  Checkpoint made(const std::string& name, const std::string& bytes) {
    test::spill(dir_ / name, bytes);
    return open(dir_ / name);
  }
  static std::vector<std::string> unread_of(const Checkpoint& checkpoint) {
    std::vector<std::string> codes;
    for (const Problem& problem : checkpoint.unread) codes.push_back(problem.code);
    return codes;
  }

  const test::TempDir dir_;
};

TEST_F(TorchFiles, AViewWithALazyOperationIsNotReadAsItsStorage) {
  const std::string yes = "\x88", none = "N";
  for (const std::string key : {"neg", "conj"}) {
    TorchFileWriter writer;
    const Checkpoint lazy =
        made("lazy.pt", writer.file(pickled_dict({{"w", writer.tensor({1, 2}, {2}, {pickled_dict({{key, yes}})})}})));
    EXPECT_TRUE(lazy.tensors.empty());
    EXPECT_THAT(unread_of(lazy), ElementsAre("view"));
    EXPECT_TRUE(verify(lazy, 1, {}).unreadable);
    EXPECT_TRUE(verify(lazy, 1, {}).problems.empty());
  }
  for (const std::string& metadata : {none, pickled_dict({}), pickled_dict({{"neg", "\x89"}})}) {
    TorchFileWriter writer;
    const Checkpoint plain =
        made("plain.pt", writer.file(pickled_dict({{"w", writer.tensor({1, 2}, {2}, {metadata})}})));
    EXPECT_EQ(plain.tensors.size(), 1U);
    EXPECT_TRUE(plain.unread.empty());
  }
}

TEST_F(TorchFiles, ATensorThatIsMadeInAnUnknownWayIsUnread) {
  for (const std::string function : {"_rebuild_qtensor", "_rebuild_wrapper_subclass", "_rebuild_from_type_v2"}) {
    TorchFileWriter writer;
    const std::string quantized = pickled_call(
        "torch._utils", function, {writer.storage({1}), pickled(0), pickled_sizes({1}), pickled_sizes({1})});
    const Checkpoint one = made("one.pt", writer.file(pickled_dict({{"w", quantized}})));
    EXPECT_EQ(one.unread.size(), 1U) << function;
    const Diff found = diff(one, one, [](std::int64_t) {});
    EXPECT_EQ(found.unread.size(), 2U) << function;
  }
  TorchFileWriter writer;
  const Checkpoint storage = made("storage.pt", writer.file(pickled_dict({{"w", writer.storage({1})}})));
  EXPECT_THAT(unread_of(storage), ElementsAre("storage"));
}

TEST_F(TorchFiles, PartsOfATensorAreTensors) {
  TorchFileWriter writer;
  const std::string layout = pickled_call("torch.serialization", "_get_layout", {pickled("torch.sparse_coo")});
  const std::string sparse = pickled_call(
      "torch._utils", "_rebuild_sparse_tensor",
      {layout, test::pickled_tuple({writer.tensor({0, 1}, {1, 2}), writer.tensor({5, 6}, {2}), pickled_sizes({9})})});
  const Checkpoint one = made("sparse.pt", writer.file(pickled_dict({{"w", sparse}})));
  EXPECT_EQ(one.tensors.size(), 2U);
  EXPECT_TRUE(one.unread.empty());
}

// cloudpickle and dill make the classes of a script by calls.
TEST_F(TorchFiles, TensorsOfAnObjectOfAClassThatACallMakesAreRead) {
  TorchFileWriter writer;
  const std::string made_class = pickled_call("cloudpickle.cloudpickle", "_make_skeleton_class", {pickled("Config")});
  const std::string object = made_class + ")\x81" + pickled_dict({{"w", writer.tensor({1, 2}, {2})}}) + "b";
  const Checkpoint one =
      made("cloud.pt", writer.file(pickled_dict({{"args", object}, {"v", writer.tensor({3}, {1})}})));
  ASSERT_EQ(one.tensors.size(), 2U);
  EXPECT_EQ(one.tensors[0].name, "args.w");
  EXPECT_TRUE(verify(one, 1, {}).sound());
}

TEST_F(TorchFiles, AnObjectThatRefersToItselfIsReadOnce) {
  for (const std::string& made_class :
       {test::pickled_global("__main__", "Node"),
        pickled_call("cloudpickle.cloudpickle", "_make_skeleton_class", {pickled("Node")})}) {
    TorchFileWriter writer;
    const std::string object =
        made_class + ")\x81q\x05" + pickled_dict({{"w", writer.tensor({1, 2}, {2})}, {"me", "h\x05"}}) + "b";
    const Checkpoint one = made("cycle.pt", writer.file(pickled_dict({{"a", object}})));
    EXPECT_TRUE(one.unread.empty());
    ASSERT_EQ(one.tensors.size(), 1U);
    EXPECT_EQ(one.tensors[0].name, "a.w");
  }
}

// Reading the archive again for each of its tensors takes quadratic time.
TEST_F(TorchFiles, AnArchiveOfSeveralTensorsIsReadOnce) {
  constexpr int kTensors = 200;
  TorchFileWriter writer;
  std::vector<std::pair<std::string, std::string>> tensors;
  for (int i = 0; i < kTensors; ++i)
    tensors.emplace_back("w" + std::to_string(i), writer.tensor({static_cast<float>(i), 7}, {2}));
  const std::string bytes = writer.file(pickled_dict(tensors));
  const Checkpoint many = made("many.pt", bytes);
  EXPECT_EQ(many.read->find(0), nullptr);
  std::shared_ptr<const ReadItem> first;
  for (const Tensor& tensor : many.tensors) {
    float value = 0;
    TensorReader(many, tensor).read(0, std::as_writable_bytes(std::span(&value, 1)));
    EXPECT_EQ("w" + std::to_string(static_cast<int>(value)), tensor.name);
    if (first == nullptr) first = many.read->find(0);
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(many.read->find(0), first);
  }
  const auto hash_with = [&](int threads) {
    const Checkpoint opened = open(many.path);
    std::vector<HashedTensor> hashed = tensors_of(opened);
    hash_tensors(hashed, threads, [](std::int64_t) {});
    return content_hash(hashed);
  };
  EXPECT_EQ(hash_with(4), hash_with(1));
  TorchFileWriter of_one;
  const std::string tensor = of_one.tensor({1}, {1});
  const Checkpoint one = made("one.pt", of_one.file(pickled_dict({{"w", tensor}})));
  float value = 0;
  TensorReader(one, one.tensors[0]).read(0, std::as_writable_bytes(std::span(&value, 1)));
  EXPECT_EQ(one.read->find(0), nullptr);  // there may be a million such
}

TEST_F(TorchFiles, ValuesThatAreNotTensorsAreComparedByName) {
  const auto file = [](std::int64_t epoch, const std::string& note, const std::string& is_on, std::int64_t last,
                       const std::string& more) {
    TorchFileWriter writer;
    std::vector<std::int64_t> numbers(1000, 7);
    numbers.back() = last;
    return writer.file(pickled_dict({{"w", writer.tensor({1, 2}, {2})},
                                     {"epoch", pickled(epoch)},
                                     {"note", pickled(note)},
                                     {"none", "N"},
                                     {"on", is_on},
                                     {"type", test::pickled_global("torch", "float32")},
                                     {"betas", pickled_sizes(numbers)},
                                     {more, pickled(1)}}));
  };
  const std::string yes = "\x88", no = "\x89", text(1000, 'x');
  const Checkpoint a = made("a.pt", file(1, text + "a", yes, 1, "x")),
                   b = made("b.pt", file(2, text + "b", no, 2, "y"));
  const Diff found = diff(a, b, [](std::int64_t) {});
  EXPECT_TRUE(found.equal()) << "tensors are";
  EXPECT_EQ(found.tensors.size(), 1U);
  EXPECT_EQ(found.num_values, 7U);
  std::vector<std::string> names;
  for (const Unmatched& row : found.values) names.push_back(row.name);
  EXPECT_THAT(names, ElementsAre("betas", "epoch", "note", "on", "x", "y"));
  EXPECT_EQ(found.values[1].a, "1");
  EXPECT_EQ(found.values[1].b, "2");
  EXPECT_EQ(found.values[3].b, "false");
  EXPECT_EQ(found.values[4].b, "");
  EXPECT_LT(found.values[0].a.size(), 300U);
  EXPECT_TRUE(diff(a, a, [](std::int64_t) {}).values.empty());
  EXPECT_EQ(verify(a, 1, {}).num_unjudged, 1005U);
}

}  // namespace
}  // namespace ms::foreign
