int  ugly( ) {return 1 ;}
