// Convolutions by the real MIOpen, all directions, types and layouts, on the emulated device.
#include "miopen_case.h"

int main()
{
    // The assembly of the Winograd solvers is not in Debian's package.
    setenv("MIOPEN_DEBUG_CONV_WINOGRAD", "0", 1);
    miopenHandle_t handle = nullptr;
    check::test("create a handle", [&] { MIOPEN(miopenCreate(&handle)); });
    if(!handle) return check::result();

    struct Shape { int n, c, h, w, k, r, s, pad, stride, dilation, groups; };
    const Shape shapes[] = {
        {1, 4, 8, 8, 8, 3, 3, 1, 1, 1, 1}, // plain
        {2, 4, 7, 9, 4, 3, 2, 0, 1, 1, 1}, // uneven
        {1, 4, 8, 8, 4, 1, 1, 0, 1, 1, 1}, // pointwise
        {1, 4, 9, 9, 6, 3, 3, 1, 2, 1, 2}, // stride and groups
        {1, 4, 9, 9, 4, 3, 3, 2, 1, 2, 4}, // dilation and depthwise
    };
    for(auto direction : {Direction::Forward, Direction::Backward, Direction::Weights})
        for(auto type : {miopenFloat, miopenHalf, miopenBFloat16})
            for(auto layout : {Layout::ChannelsFirst, Layout::ChannelsLast})
                for(auto& f : shapes)
                {
                    Problem p{type, direction, layout, f.n, f.c, f.h, f.w, f.k, f.r, f.s, f.pad, f.stride, f.dilation, f.groups};
                    check::test(p.name(), [&] {
                        Case one(p);
                        one.launch(handle, p.naive_solver());
                        one.compare();
                    });
                }
    check::test("destroy the handle", [&] { MIOPEN(miopenDestroy(handle)); });
    return check::result();
}
