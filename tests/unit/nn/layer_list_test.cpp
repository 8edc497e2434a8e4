// Lists of layers: what they name, what is refused, and how one is written.
#include "nn/layer_list.h"

#include <gtest/gtest.h>

#include <vector>

namespace ms::nn {
namespace {

TEST(LayerList, NamesLayersAsATaskArrayDoes) {
  struct Case {
    const char* list;
    std::vector<std::int64_t> layers;
    const char* written;
  };
  const Case cases[] = {
      {"", {}, ""},
      {"3", {3}, "3"},
      {"0-2", {0, 1, 2}, "0-2"},
      {"0, 5 ,7-8", {0, 5, 7, 8}, "0,5,7-8"},
      {"0-9:3", {0, 3, 6, 9}, "0-9:3"},
      {"0-9:4,1", {0, 1, 4, 8}, "0-1,4,8"},
      {"2-2,2,1-3", {1, 2, 3}, "1-3"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(layer_list_problem(c.list, 10), "") << c.list;
    std::vector<std::int64_t> found;
    for (std::int64_t i = 0; i < 10; ++i) {
      if (lists_layer(c.list, i)) found.push_back(i);
    }
    EXPECT_EQ(found, c.layers) << c.list;
    EXPECT_EQ(listed_layers(c.list, 10), std::ssize(c.layers)) << c.list;
    EXPECT_EQ(layer_list(c.layers), c.written);
  }
}

TEST(LayerList, RefusesOtherTexts) {
  for (const char* list : {",", "1,", "a", "-1", "-0", "1-", "2-1", "1:2", "0-4:", "0-4:0", "0-4:-1", "0-4:2x", "1 2",
                           "99999999999999999999", "10", "3-10"})
    EXPECT_NE(layer_list_problem(list, 10), "") << list;
}

}  // namespace
}  // namespace ms::nn
