#include <gtest/gtest.h>
#include "mesh/high.h"
#include "../../tools/ms-x.cpp"
