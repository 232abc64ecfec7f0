# The cuda backend: kernels for sm_80 and sm_90, the runtime linked statically; cuBLASLt and cuSOLVER are loaded at run time
# (headers only here), so the program also starts on machines without a GPU or a toolkit.
set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 90-virtual)
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)

file(GLOB cuda_sources CONFIGURE_DEPENDS src/backends/cuda/*.c src/backends/cuda/*.cu)
# wgmma and the copy engine exist for sm_90a alone; asked at run time (cuda_hopper.h).
file(GLOB hopper_sources CONFIGURE_DEPENDS src/backends/cuda/cuda_hopper*.cu)
list(REMOVE_ITEM cuda_sources ${hopper_sources})
add_library(polar_hopper OBJECT ${hopper_sources})
set_target_properties(polar_hopper PROPERTIES CUDA_ARCHITECTURES 90a-real CUDA_STANDARD 17 CUDA_VISIBILITY_PRESET hidden)
target_sources(polar PRIVATE $<TARGET_OBJECTS:polar_hopper>)
list(APPEND kernel_objects $<TARGET_OBJECTS:polar_hopper>)    # for the shared library, too
target_sources(polar PRIVATE ${cuda_sources})
target_include_directories(polar PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_compile_definitions(polar PUBLIC POLAR_HAVE_CUDA)
set_target_properties(polar PROPERTIES CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}" CUDA_STANDARD 17 CUDA_RUNTIME_LIBRARY Static)
target_link_libraries(polar PUBLIC CUDA::cudart_static ${CMAKE_DL_LIBS})
