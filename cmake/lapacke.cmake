# polar_lapacke: LAPACK's C interface, for singular values and QR only (never for products).
find_path(LAPACKE_INCLUDE lapacke.h PATH_SUFFIXES openblas lapacke REQUIRED)
find_library(LAPACKE_LIBRARY lapacke REQUIRED)
find_library(LAPACK_LIBRARY NAMES openblas lapack REQUIRED)
add_library(polar_lapacke INTERFACE)
target_include_directories(polar_lapacke INTERFACE ${LAPACKE_INCLUDE})
target_link_libraries(polar_lapacke INTERFACE ${LAPACKE_LIBRARY} ${LAPACK_LIBRARY})
