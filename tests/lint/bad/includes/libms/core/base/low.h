#pragma once
#include <base/other.h>
#include <vector>

#include "../mesh/high.h"
#include "base/other.h"
#include "low_impl.h"
#include "mesh/high.h"
// #include "mesh/commented_out.h"
